from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from store.config import StoreConfig
from store.database import Database
from store.errors import RowConflict, RowNotFound
from store.runs import Run, RunExists, RunOutcome, RunStatus, RunStore
from store.threads import FEW_THREADS, ThreadQuery, ThreadStore

TAGS = {"graph_id": "g"}


@asynccontextmanager
async def tables(home: Path) -> AsyncIterator[tuple[ThreadStore, RunStore]]:
    async with Database.open(StoreConfig(), home) as database:
        yield ThreadStore(database), RunStore(database)


def a_run(run_id: str, thread_id: str = "t", status: RunStatus = "running") -> Run:
    return Run(
        run_id=run_id,
        thread_id=thread_id,
        assistant_id="a",
        status=status,
        metadata={"m": 1},
        kwargs={"input": {"n": 1}},
        multitask_strategy="enqueue",
        created_at=5.0,
        updated_at=5.0,
    )


async def test_threads_are_made_once(tmp_path: Path) -> None:
    async with tables(tmp_path) as (threads, _):
        made = await threads.create("t", {"user": "u1"}, now=1.0)
        assert (made.status, made.metadata, made.created_at) == ("idle", {"user": "u1"}, 1.0)
        assert await threads.get("t") == made
        with pytest.raises(RowConflict, match="already exists"):
            await threads.create("t", {}, now=2.0)
        patched = await threads.patch("t", {"title": "T"}, now=3.0)
        assert patched.metadata == {"user": "u1", "title": "T"}
        assert (patched.updated_at, patched.state_updated_at) == (3.0, 1.0)
        for missing in (threads.get("x"), threads.patch("x", {}, now=1.0)):
            with pytest.raises(RowNotFound, match="Thread with ID x not found"):
                await missing
        assert await threads.delete("t")
        assert not await threads.delete("t")


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({}, ["c", "b", "a"]),
        ({"who": "u1"}, ["b", "a"]),
        ({"who": "u1", "n": 2}, ["b"]),
        ({"flag": True}, ["c"]),
        ({"flag": 1}, []),
        ({"nothing": None}, ["c"]),
        ({"list": [1, {"x": "y"}]}, ["c"]),
        ({"who": "' OR 1=1 --"}, []),
        ({'wh"o': "u1"}, []),
        ({"a.b": "dot"}, ["c"]),
    ],
)
async def test_threads_are_found_by_metadata(
    tmp_path: Path, metadata: dict[str, Any], found: list[str]
) -> None:
    async with tables(tmp_path) as (threads, _):
        await threads.create("a", {"who": "u1", "n": 1}, now=1.0)
        await threads.create("b", {"who": "u1", "n": 2}, now=2.0)
        odd = {"flag": True, "nothing": None, "list": [1, {"x": "y"}], "a.b": "dot"}
        await threads.create("c", odd, now=3.0)
        query = ThreadQuery(metadata=metadata)
        assert [thread.thread_id for thread in await threads.search(query)] == found
        assert await threads.count(query) == len(found)


async def test_threads_are_found_by_status_and_ids(tmp_path: Path) -> None:
    async with tables(tmp_path) as (threads, runs):
        for number, name in enumerate("abc"):
            await threads.create(name, {}, now=float(number))
        await runs.create(a_run("r", "a"), tags=TAGS, create_thread=False)

        async def names(query: ThreadQuery) -> list[str]:
            return [one.thread_id for one in await threads.search(query)]

        assert await names(ThreadQuery()) == ["a", "c", "b"]
        assert await names(ThreadQuery(status="busy")) == ["a"]
        assert await names(ThreadQuery(ids=["b", "x"])) == ["b"]
        second = ThreadQuery(sort_by="created_at", descending=False, limit=1, offset=1)
        assert await names(second) == ["b"]


async def test_a_run_and_its_thread_change_together(tmp_path: Path) -> None:
    async with tables(tmp_path) as (threads, runs):
        with pytest.raises(RowNotFound):
            await runs.create(a_run("r1"), tags=TAGS, create_thread=False)
        with pytest.raises(RowNotFound):
            await runs.get("t", "r1")
        await runs.create(a_run("r1"), tags=TAGS, create_thread=True)
        thread = await threads.get("t")
        assert (thread.status, thread.metadata) == ("busy", TAGS)
        assert await runs.get("t", "r1") == a_run("r1")
        with pytest.raises(RowNotFound):
            await runs.get("other", "r1")
        end = RunOutcome(
            run_id="r1",
            thread_id="t",
            status="error",
            thread_status="error",
            error={"error": "ValueError", "message": "no"},
            interrupts={"task": [{"id": "i", "value": 1}]},
            title="A title",
        )
        await runs.finish(end, now=9.0)
        ended, thread = await runs.get("t", "r1"), await threads.get("t")
        assert (ended.status, ended.error, ended.updated_at) == ("error", end.error, 9.0)
        assert (thread.status, thread.error, thread.title) == ("error", end.error, "A title")
        assert thread.interrupts == end.interrupts
        again = RunOutcome(run_id="r1", thread_id="t", status="success", thread_status="idle")
        await runs.finish(again, now=10.0)
        assert (await threads.get("t")).title == "A title"
        await runs.finish(
            RunOutcome(
                run_id="r1",
                thread_id="t",
                status="interrupted",
                thread_status="idle",
                delete_run=True,
            ),
            now=11.0,
        )
        assert await runs.list_by_thread("t") == []


async def test_runs_can_be_listed_and_deleted(tmp_path: Path) -> None:
    async with tables(tmp_path) as (threads, runs):
        for name in ("r1", "r2", "r3"):
            await runs.create(a_run(name, status="pending"), tags=TAGS, create_thread=True)
        await runs.mark_running("r2", now=6.0)
        assert [run.run_id for run in await runs.list_by_thread("t")] == ["r3", "r2", "r1"]
        assert [run.run_id for run in await runs.list_by_thread("t", limit=1, offset=1)] == ["r2"]
        assert [run.run_id for run in await runs.list_by_thread("t", status="running")] == ["r2"]
        assert await runs.delete("t", "r3")
        assert not await runs.delete("t", "r3")
        await threads.delete("t")
        assert await runs.list_by_thread("t") == []


async def test_open_runs_of_a_dead_process_are_closed(tmp_path: Path) -> None:
    async with tables(tmp_path) as (threads, runs):
        await runs.create(a_run("r1"), tags=TAGS, create_thread=True)
        await runs.create(a_run("r2", status="pending"), tags=TAGS, create_thread=True)
        assert await runs.interrupt_lost(now=20.0) == 2
        assert {run.status for run in await runs.list_by_thread("t")} == {"interrupted"}
        assert (await threads.get("t")).status == "idle"
        assert await runs.interrupt_lost(now=21.0) == 0


async def test_metadata_filters_match_whole_values_of_every_type(database: Database) -> None:
    threads = ThreadStore(database)
    long = "x" * 300
    values: list[object] = [
        1,
        "1",
        True,
        None,
        1.5,
        'é\n"',
        {"a": [1, 2]},
        [],
        "",
        long + "a",
        long + "b",
    ]
    for number, value in enumerate(values):
        await threads.create(f"t{number}", {"key": value, 'odd "key".': number}, now=float(number))
    for number, value in enumerate(values):
        for metadata in ({"key": value}, {"key": value, 'odd "key".': number}):
            query = ThreadQuery(metadata=metadata)
            assert [one.thread_id for one in await threads.search(query)] == [f"t{number}"], value
            assert await threads.count(query) == 1
    assert await threads.search(ThreadQuery(metadata={"key": "x"})) == []
    assert await threads.search(ThreadQuery(metadata={"none": None})) == []


async def test_changed_and_deleted_metadata_is_not_found_any_more(database: Database) -> None:
    threads = ThreadStore(database)
    await threads.create("t", {"a": 1, "b": 2}, now=1.0)
    await threads.patch("t", {"a": 3}, now=2.0)
    assert await threads.count(ThreadQuery(metadata={"a": 1})) == 0
    assert await threads.count(ThreadQuery(metadata={"a": 3, "b": 2})) == 1
    await threads.delete("t")
    assert await threads.count(ThreadQuery(metadata={"b": 2})) == 0
    assert await database.read("SELECT * FROM thread_metadata") == []


async def test_a_filter_that_matches_many_threads_keeps_the_order(database: Database) -> None:
    threads = ThreadStore(database)
    for number in range(FEW_THREADS + 5):
        await threads.create(f"t{number:04}", {"graph_id": "agent"}, now=float(number))
    query = ThreadQuery(metadata={"graph_id": "agent"}, limit=3, offset=1)
    found = [one.thread_id for one in await threads.search(query)]
    assert found == [f"t{FEW_THREADS + 3 - n:04}" for n in range(3)]
    assert await threads.count(query) == FEW_THREADS + 5


@pytest.fixture(params=["sqlite", "postgres"])
async def runs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunStore]:
    """Yield the runs of a database, for each engine."""
    url = "" if request.param == "sqlite" else str(request.getfixturevalue("url"))
    async with Database.open(StoreConfig(url=url) if url else StoreConfig(), tmp_path) as database:
        yield RunStore(database)


def keyed(run_id: str, thread_id: str = "t") -> Run:
    return replace(a_run(run_id, thread_id, "pending"), start_key="m")


async def create(runs: RunStore, run: Run, *undone: str) -> None:
    await runs.create(run, tags=TAGS, create_thread=True, undone=undone)


@pytest.mark.parametrize("status", ["success", "error", "timeout", "interrupted"])
async def test_a_start_key_has_one_run_unless_that_failed(
    runs: RunStore, status: RunStatus
) -> None:
    await create(runs, keyed("r1"))
    with pytest.raises(RunExists) as found:
        await create(runs, keyed("r2"))
    assert found.value.run_id == "r1"
    await create(runs, keyed("of-another-thread", "t2"))
    await create(runs, a_run("without-a-key"))

    end = RunOutcome(run_id="r1", thread_id="t", status=status, thread_status="idle")
    await runs.finish(end, now=6.0)
    if status == "success":
        with pytest.raises(RunExists):
            await create(runs, keyed("r2"))
    else:
        await create(runs, keyed("r2"))
    expected = ["without-a-key", "r1"] if status == "success" else ["r2", "without-a-key", "r1"]
    assert [run.run_id for run in await runs.list_by_thread("t")] == expected


async def test_only_one_of_several_simultaneous_starts_creates_the_run(runs: RunStore) -> None:
    found: list[str] = []

    async def start(number: int) -> None:
        try:
            await create(runs, keyed(f"r{number}"))
        except RunExists as error:
            found.append(error.run_id)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(start, number)
    [run] = await runs.list_by_thread("t")
    assert found == [run.run_id] * 7


async def test_a_start_that_finds_a_run_changes_nothing(runs: RunStore) -> None:
    await create(runs, keyed("r1"))
    end = RunOutcome(run_id="r1", thread_id="t", status="success", thread_status="idle")
    await runs.finish(end, now=6.0)
    threads = ThreadStore(runs._database)
    before = await threads.get("t")
    with pytest.raises(RunExists):
        await create(runs, replace(keyed("r2"), created_at=7.0))
    assert await threads.get("t") == before


async def test_a_start_that_is_taken_back_is_not_found(runs: RunStore) -> None:
    await create(runs, keyed("late"))
    await create(runs, keyed("r2"), "late")
    assert [run.run_id for run in await runs.list_by_thread("t")] == ["r2"]
    with pytest.raises(RunExists):
        await create(runs, keyed("r3"), "late")
