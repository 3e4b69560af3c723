"""Values that no database can store: the caller gets ValueRefused, and others are not affected, on both engines."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from store.config import StoreConfig
from store.database import Database
from store.errors import ValueRefused
from store.threads import ThreadStore
from store.transaction import Value

READ = "SELECT thread_id FROM thread WHERE thread_id = :id AND created_at > :at"
RENAME = "UPDATE thread SET status = 'busy' WHERE thread_id = :id AND created_at > :at"
COUNT = 40

REFUSED: dict[str, Value] = {
    "half a surrogate pair": "a\ud800b",
    "both halves, swapped": "\udc00\ud800",
    "above 64 bits": 2**63,
    "below 64 bits": -(2**63) - 1,
    "hundreds of digits": 10**400,
}

Call = Callable[[Database, Value], Awaitable[object]]


def _parameters(value: Value) -> dict[str, Value]:
    return {"id": value, "at": 0} if isinstance(value, str) else {"id": "t0", "at": value}


async def _read(database: Database, value: Value) -> object:
    return await database.read(READ, _parameters(value))


async def _execute(database: Database, value: Value) -> object:
    return await database.execute(RENAME, _parameters(value))


async def _run(database: Database, value: Value) -> object:
    return await database.transaction(lambda tx: tx.run(RENAME, _parameters(value)))


async def _run_all(database: Database, value: Value) -> object:
    statements = [(RENAME, _parameters("t0")), (RENAME, _parameters(value))]
    return await database.transaction(lambda tx: tx.run_all(statements))


@pytest.mark.parametrize("call", [_read, _execute, _run, _run_all])
@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
async def test_a_value_is_refused_and_nothing_is_stored(
    database: Database, call: Call, value: Value
) -> None:
    threads = ThreadStore(database)
    await threads.create("t0", {}, now=1.0)
    with pytest.raises(ValueRefused):
        await call(database, value)
    assert (await threads.get("t0")).status == "idle"
    assert database.outage == ""


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), "\U0001f600", "\ue000"])
async def test_the_last_values_that_fit_are_taken(database: Database, value: Value) -> None:
    await _read(database, value)
    await _execute(database, value)


@pytest.mark.parametrize("call", [_read, _execute, _run])
@pytest.mark.parametrize("value", ["\ud800", 2**63])
async def test_other_callers_of_the_same_moment_are_served(
    database: Database, call: Call, value: Value
) -> None:
    threads = ThreadStore(database)
    names = [f"t{number}" for number in range(COUNT)]
    for name in names:
        await threads.create(name, {}, now=1.0)
    refused: list[str] = []

    async def change(name: str, asked: Callable[[], Awaitable[object]]) -> None:
        try:
            await asked()
        except ValueRefused:
            refused.append(name)

    async with anyio.create_task_group() as group:
        for number, name in enumerate(names):
            group.start_soon(change, name, partial(call, database, name))
            if number % 10 == 0:
                group.start_soon(change, "odd", partial(call, database, value))
    assert refused == ["odd"] * 4
    busy = {name for name in names if (await threads.get(name)).status == "busy"}
    assert busy == (set() if call is _read else set(names))


async def test_a_key_longer_than_an_index_of_postgres_takes_is_no_outage(
    url: str, tmp_path: Path
) -> None:
    key = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(20_000))
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        with pytest.raises(ValueRefused):
            await ThreadStore(database).create(key, {}, now=1.0)
        assert database.outage == ""
