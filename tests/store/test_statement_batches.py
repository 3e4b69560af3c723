"""Single statements that PostgreSQL runs together: each has its own outcome."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import psycopg
import pytest

from store.config import StoreConfig
from store.database import Database
from store.errors import StoreUnavailable
from store.inbox import DuplicateMessage, InboxRow, InboxStore, NewInboxRow
from store.threads import ThreadStore
from store.transaction import Row
from tests.eventually import eventually
from tests.store.test_postgres import KEY, message

SET_STATUS = "UPDATE thread SET status = :status WHERE thread_id = :id RETURNING thread_id"
ADD = """
UPDATE thread SET updated_at = updated_at + 1 WHERE thread_id = :id RETURNING thread_id
"""


async def create_threads(database: Database, *names: str) -> ThreadStore:
    threads = ThreadStore(database)
    for name in names:
        await threads.create(name, {}, now=1.0)
    return threads


async def test_the_rows_of_each_statement_reach_its_caller(database: Database) -> None:
    names = [f"t{number}" for number in range(200)]
    await create_threads(database, *names)
    found: dict[str, Sequence[Row]] = {}

    async def add(name: str) -> None:
        found[name] = await database.execute(ADD, {"id": name})

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(add, name)
    assert found == {name: [{"thread_id": name}] for name in names}


async def test_statements_of_many_callers_are_committed_together(url: str, tmp_path: Path) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(create_threads, database, f"t{number}")
        rows = await database.read("SELECT count(DISTINCT xmin::text) AS n FROM thread")
    assert rows[0]["n"] < 50


async def test_a_statement_that_fails_fails_alone(database: Database) -> None:
    threads = await create_threads(database, *(f"t{number}" for number in range(20)))
    failed: list[str] = []

    async def change(name: str, status: str) -> None:
        try:
            await database.execute(SET_STATUS, {"id": name, "status": status})
        except Exception as error:  # noqa: BLE001 - the type depends on the engine
            failed.append(f"{name}: {type(error).__name__}")

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(change, f"t{number}", "no status" if number == 7 else "busy")
    assert [text.split(":")[0] for text in failed] == ["t7"]
    assert "StoreUnavailable" not in failed[0]
    for number in range(20):
        status = (await threads.get(f"t{number}")).status
        assert status == ("idle" if number == 7 else "busy")


async def test_a_statement_that_waits_for_a_lock_holds_up_no_other(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        threads = await create_threads(database, "locked", "free")
        done: list[str] = []

        async def add(name: str) -> None:
            await database.execute(ADD, {"id": name})
            done.append(name)

        async with (
            anyio.create_task_group() as group,
            await psycopg.AsyncConnection.connect(url) as other,
        ):
            await other.execute("SELECT 1 FROM thread WHERE thread_id = 'locked' FOR NO KEY UPDATE")
            group.start_soon(add, "locked")
            for _ in range(5):
                group.start_soon(add, "free")
            await eventually(lambda: len(done) == 5)
            await add("free")
            assert done == ["free"] * 6
        assert done[-1] == "locked"
        assert (await threads.get("free")).updated_at == 7.0


async def test_nodes_that_lock_the_same_rows_in_different_orders_lose_nothing(
    url: str, tmp_path: Path
) -> None:
    config = StoreConfig(url=url)
    async with (
        Database.open(config, tmp_path / "a") as one,
        Database.open(config, tmp_path / "b") as other,
    ):
        threads = await create_threads(one, "x", "y")

        async def add(database: Database, names: str) -> None:
            async with anyio.create_task_group() as group:
                for name in names:
                    group.start_soon(database.execute, ADD, {"id": name})

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(add, one, "xy")
                group.start_soon(add, other, "yx")
        assert [(await threads.get(name)).updated_at for name in "xy"] == [41.0, 41.0]


async def test_queued_statements_are_stored_when_the_database_is_closed(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        await create_threads(database, "t")
        async with anyio.create_task_group() as group:
            for _ in range(30):
                group.start_soon(database.execute, ADD, {"id": "t"})
    async with Database.open(StoreConfig(url=url), tmp_path) as database:
        assert (await ThreadStore(database).get("t")).updated_at == 31.0
    with pytest.raises(StoreUnavailable):
        await database.execute(ADD, {"id": "t"})


async def test_a_message_that_two_nodes_accept_at_once_is_stored_once(
    url: str, tmp_path: Path
) -> None:
    config = StoreConfig(url=url)
    async with (
        Database.open(config, tmp_path / "a") as one,
        Database.open(config, tmp_path / "b") as other,
    ):
        inboxes = [InboxStore(one), InboxStore(other)]
        results: list[object] = []

        async def accept(inbox: InboxStore, new: NewInboxRow) -> None:
            results.append(await inbox.accept(new, cap=100))

        async with anyio.create_task_group() as group:
            for number in range(30):
                for inbox in inboxes:
                    group.start_soon(accept, inbox, message(number))
        rows = await inboxes[0].list_own(KEY) or await inboxes[1].list_own(KEY)
        assert [row.seq for row in rows] == list(range(1, 31))
        assert sum(isinstance(one, InboxRow) for one in results) == 30
        assert sum(isinstance(one, DuplicateMessage) for one in results) == 30
