"""Runs of several nodes on one PostgreSQL database: which node executes a run, and the runs of a dead node."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import psycopg
import pytest

from store.config import StoreConfig
from store.database import Database
from store.runs import Run, RunOutcome, RunStore, ThreadAtOtherNode
from store.threads import ThreadStore
from tests.eventually import eventually


def pending_run(run_id: str, thread_id: str) -> Run:
    return Run(
        run_id=run_id, thread_id=thread_id, assistant_id="a", status="pending", metadata={}, kwargs={},
        multitask_strategy="enqueue", created_at=1.0, updated_at=1.0,
    )  # fmt: skip


async def create(rows: RunStore, run_id: str, thread_id: str) -> None:
    await rows.create(pending_run(run_id, thread_id), tags={}, create_thread=True)


async def finish(rows: RunStore, run_id: str, thread_id: str) -> None:
    end = RunOutcome(run_id=run_id, thread_id=thread_id, status="success", thread_status="idle")
    await rows.finish(end, now=2.0)


@pytest.fixture
async def databases(url: str, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    """Yield the database as two nodes have opened it."""
    async with AsyncExitStack() as stack:
        opened = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            opening = Database.open(StoreConfig(url=url), tmp_path / name)
            opened.append(await stack.enter_async_context(opening))
        yield opened[0], opened[1]


async def test_a_thread_has_runs_of_one_node_at_a_time(
    databases: tuple[Database, Database],
) -> None:
    a, b = databases
    of_a, of_b = RunStore(a), RunStore(b)
    await create(of_a, "r1", "t")
    assert await of_b.find_thread_node("t") == a.nodes.number
    assert await of_b.find_run_node("r1") == (a.nodes.number, "pending")
    with pytest.raises(ThreadAtOtherNode) as refused:
        await create(of_b, "r2", "t")
    assert refused.value.node == a.nodes.number
    with pytest.raises(ThreadAtOtherNode):
        await of_b.check_thread("t")
    await of_a.check_thread("t")
    await create(of_a, "r3", "t")
    await create(of_b, "r4", "other")
    for run_id in ("r1", "r3"):
        await finish(of_a, run_id, "t")
    assert await of_b.find_thread_node("t") is None
    await create(of_b, "r2", "t")
    assert await of_a.find_thread_node("t") == b.nodes.number


async def test_only_one_node_creates_a_run_on_a_thread_at_a_time(
    databases: tuple[Database, Database],
) -> None:
    refused: list[str] = []

    async def attempt(rows: RunStore, run_id: str, thread_id: str) -> None:
        try:
            await create(rows, run_id, thread_id)
        except ThreadAtOtherNode:
            refused.append(thread_id)

    async with anyio.create_task_group() as group:
        for number in range(30):
            for name, database in zip("ab", databases, strict=True):
                group.start_soon(attempt, RunStore(database), f"{name}{number}", f"t{number}")
    assert sorted(refused) == sorted(f"t{number}" for number in range(30))


async def test_runs_of_a_dead_node_are_interrupted_and_those_of_living_ones_go_on(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with Database.open(StoreConfig(url=url), tmp_path / "a") as a:
        rows, threads = RunStore(a), ThreadStore(a)
        await create(rows, "of-a", "ta")
        async with Database.open(StoreConfig(url=url), tmp_path / "b") as b:
            await create(RunStore(b), "of-b", "tb")
            await eventually(lambda: a.nodes.living, lambda living: len(living) == 2)
            assert await rows.interrupt_lost(now=5.0) == 0
            assert await RunStore(b).interrupt_lost(now=5.0) == 0
        await eventually(lambda: a.nodes.living, lambda living: len(living) == 1)
        assert (await rows.get("tb", "of-b")).status == "interrupted"
        assert [run.status for run in await rows.list_by_thread("tb")] == ["interrupted"]
        assert [run.status for run in await rows.list_by_thread("ta")] == ["pending"]
        assert await rows.interrupt_lost(now=6.0) == 1
        assert await rows.interrupt_lost(now=7.0) == 0
        left = await rows.get("tb", "of-b")
        assert left.status == "interrupted"
        assert left.error == {
            "error": "Interrupted",
            "message": "The server stopped during this run.",
        }
        assert (await threads.get("tb")).status == "idle"
        assert (await rows.get("ta", "of-a")).status == "pending"
        assert (await threads.get("ta")).status == "busy"


async def test_the_last_of_runs_that_end_at_once_leaves_the_thread_idle(
    databases: tuple[Database, Database], url: str
) -> None:
    """Another connection holds the thread's row until both ends are waiting for it."""
    rows = RunStore(databases[0])
    for name in ("r1", "r2"):
        await create(rows, name, "t")

    async def waiting() -> int:
        found = await databases[1].read(
            "SELECT count(*) AS n FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(found[0]["n"])

    async with (
        anyio.create_task_group() as group,
        await psycopg.AsyncConnection.connect(url) as other,
    ):
        await other.execute("SELECT * FROM thread FOR UPDATE")
        for name in ("r1", "r2"):
            group.start_soon(finish, rows, name, "t")
        await eventually(waiting, lambda number: number == 2)
        await other.rollback()
    assert (await ThreadStore(databases[1]).get("t")).status == "idle"
