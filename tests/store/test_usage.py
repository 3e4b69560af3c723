"""Usage rows, limits and reservations, on both engines."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from store.database import Database
from store.retention import Retention
from store.usage import (
    FinishedUsage,
    UsageCounter,
    UsageLimit,
    UsageLimitReached,
    UsageRow,
    UsageStore,
)

ROW = UsageRow(
    day="2026-11-28",
    run_id="r1",
    kind="run",
    model="gpt",
    agent="lead_agent",
    person="slack:T:ann",
    room="slack:T:C1",
    calls=1,
    input_tokens=90,
    output_tokens=10,
    cost_nano_usd=5,
)
PERSON = UsageCounter(scope="person", name="slack:T:ann", period="2026-11-28")
SERVICE = UsageCounter(scope="service", name="", period="2026-11")


async def _counter(database: Database, scope: str) -> tuple[int, int]:
    (row,) = await database.read(
        "SELECT tokens, reserved_tokens FROM usage_counter WHERE scope = :scope", {"scope": scope}
    )
    return row["tokens"], row["reserved_tokens"]


async def test_calls_of_one_run_are_one_row(database: Database) -> None:
    store = UsageStore(database)
    await store.add([FinishedUsage(row=ROW), FinishedUsage(row=ROW)])
    await store.add([FinishedUsage(row=ROW), FinishedUsage(row=replace(ROW, kind="title"))])
    found = await store.totals(by=["kind"], filters={"person": "slack:T:ann"}, since="2026-11-28")
    assert [(row["kind"], row["calls"], row["input_tokens"]) for row in found] == [
        ("run", 3, 270),
        ("title", 1, 90),
    ]
    assert (await store.totals(until="2026-11-27"))[0]["calls"] == 0
    with pytest.raises(ValueError, match="columns"):
        await store.totals(by=["calls; DROP TABLE model_usage"])


async def test_parallel_reservations_never_exceed_a_limit(database: Database) -> None:
    store = UsageStore(database)
    limits = [UsageLimit(counter=SERVICE), UsageLimit(counter=PERSON, max_tokens=1_000)]
    accepted: list[str] = []
    warned: list[UsageLimit] = []
    refused: list[UsageCounter] = []

    async def reserve(number: int) -> None:
        try:
            warned.extend(
                await store.reserve(f"r{number}", replace(ROW, run_id=f"r{number}"), limits)
            )
        except UsageLimitReached as error:
            refused.append(error.limit.counter)
        else:
            accepted.append(f"r{number}")

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(reserve, number)
    assert len(accepted) == 10
    assert refused == [PERSON] * 30
    assert [limit.counter for limit in warned] == [PERSON]
    assert await _counter(database, "person") == (0, 1_000)
    assert await _counter(database, "service") == (0, 1_000)  # refused calls left no rows
    used = replace(ROW, output_tokens=0)
    await store.add(FinishedUsage(row=used, reservation_id=name) for name in accepted)
    assert await _counter(database, "person") == (900, 0)
    await store.reserve("last", ROW, limits)


async def test_reservations_of_ended_processes_are_settled_once(database: Database) -> None:
    store = UsageStore(database)
    await store.reserve("a", replace(ROW, estimated_calls=1), [UsageLimit(counter=PERSON)])
    node = database.nodes.number
    if node:
        assert await store.settle_abandoned() == 0  # this node is alive
        await database.execute("UPDATE usage_reservation SET node = 999", {})
    assert await store.settle_abandoned() == 1
    assert await store.settle_abandoned() == 0
    await store.add([FinishedUsage(row=ROW, reservation_id="a")])  # too late
    assert await _counter(database, "person") == (100, 0)
    (total,) = await store.totals()
    assert (total["calls"], total["estimated_calls"]) == (1, 1)


async def test_a_limit_counts_what_was_used_before_it_was_configured(database: Database) -> None:
    store = UsageStore(database)
    await store.add([FinishedUsage(row=ROW)])
    for counter in (PERSON, SERVICE):
        with pytest.raises(UsageLimitReached):
            await store.reserve("a", ROW, [UsageLimit(counter=counter, max_tokens=199)])
        await store.reserve(counter.scope, ROW, [UsageLimit(counter=counter, max_tokens=200)])


async def test_retention_keeps_the_sums_without_people(database: Database) -> None:
    store = UsageStore(database)
    await store.add([FinishedUsage(row=ROW), FinishedUsage(row=replace(ROW, day="2020-01-01"))])
    await store.reserve("a", ROW, [UsageLimit(counter=PERSON)])
    now = datetime(2026, 11, 29, tzinfo=UTC)
    await Retention(database).prune(now=now.timestamp())
    people = {row["day"]: row["person"] for row in await store.totals(by=["day", "person"])}
    assert people == {"2020-01-01": "", "2026-11-28": "slack:T:ann"}
    assert (await store.totals())[0]["calls"] == 2
    await Retention(database).prune(now=now.replace(month=12).timestamp())
    assert await database.read("SELECT * FROM usage_counter", {}) == []


async def test_what_is_forgotten_stays_in_the_sums(database: Database) -> None:
    store = UsageStore(database)
    await store.add([FinishedUsage(row=ROW)])
    await store.forget_person("slack:T:ann")
    assert (await store.totals(filters={"person": "slack:T:ann"}))[0]["calls"] == 0
    await store.forget_room("slack:T:C1")
    assert (await store.totals(by=["room", "person"]))[0]["room"] == ""
    assert (await store.totals())[0]["input_tokens"] == 90


async def test_the_channel_is_the_beginning_of_the_room_or_person(database: Database) -> None:
    store = UsageStore(database)
    rows = [
        ROW,
        replace(ROW, run_id="r2", room="feishu:t:oc_1", person="feishu:t:ou_1"),
        replace(ROW, run_id="r3", room="", person="telegram::7"),
        replace(ROW, run_id="r4", room="", person=""),
    ]
    await store.add(FinishedUsage(row=row) for row in rows)
    found = await store.totals(by=["channel"])
    assert [row["channel"] for row in found] == ["", "feishu", "slack", "telegram"]
    (one,) = await store.totals(by=["room"], filters={"channel": "feishu"})
    assert one["room"] == "feishu:t:oc_1"
    some = await store.totals(by=["person"], filters={"person": ["slack:T:ann", "telegram::7"]})
    assert [row["person"] for row in some] == ["slack:T:ann", "telegram::7"]


async def test_used_counts_reservations_and_what_was_before_the_limit(database: Database) -> None:
    store = UsageStore(database)
    assert await store.used(PERSON) == (0, 0)
    await store.add([FinishedUsage(row=ROW)])
    assert await store.used(PERSON) == (100, 5)
    await store.reserve("a", ROW, [UsageLimit(counter=PERSON, max_tokens=1_000)])
    assert await store.used(PERSON) == (200, 10)
