"""The run manager on its own: restarts, kills, stopping, and the runs it keeps."""

import gc
import operator
import random
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import anyio
import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from gateway.runtime.creation import new_local_run
from gateway.runtime.errors import RuntimeClosing, ThreadBusyError
from gateway.runtime.execution import Graph
from gateway.runtime.finished_runs import FRESH_BYTES, FinishedRuns
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager, RuntimeSettings
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import KEEP, open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.errors import RowNotFound, StoreUnavailable
from store.runs import MultitaskStrategy, RunExists
from store.work_group import WORK_GROUP
from tests.eventually import eventually
from tests.fakes.graphs import Graphs, State
from tests.garbage import garbage_made

THREAD = "0b63b403-e0ed-40b2-9589-e740f38a62a3"


@asynccontextmanager
async def runtime(
    home: Path, settings: RuntimeSettings | None = None, url: str = ""
) -> AsyncIterator[tuple[RunManager, Graphs]]:
    graphs = Graphs()
    async with (
        Database.open(StoreConfig(url=url) if url else StoreConfig(), home) as database,
        open_checkpointer(home, database) as checkpointer,
        RunManager(
            database, graphs.sources, checkpointer, settings=settings or RuntimeSettings()
        ) as runs,
    ):
        yield runs, graphs


def asking(
    graph: str,
    n: int | None = 1,
    *,
    thread_id: str = THREAD,
    multitask: MultitaskStrategy = "enqueue",
) -> GraphRunRequest:
    return GraphRunRequest(
        thread_id=thread_id,
        assistant_id=graph,
        modes=parse_stream_modes("values"),
        input=None if n is None else {"n": n},
        create_thread=True,
        durability="sync",
        multitask=multitask,
    )


async def test_stopping_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, graphs):
        first = await runs.start(asking("slow"))
        second = await runs.start(asking("instant"))
        await graphs.reached.wait()
    assert graphs.stopped.is_set()
    assert (first.row.status, second.row.status) == ("interrupted", "interrupted")
    assert first.log.closed
    with pytest.raises(RuntimeClosing):
        await runs.start(asking("instant"))
    async with runtime(tmp_path) as (again, _):
        statuses = {run.status for run in await again.rows.list_by_thread(THREAD)}
        assert statuses == {"interrupted"}
        assert (await again.threads.get(THREAD)).status != "busy"


async def test_a_run_and_what_it_starts_are_a_group_of_their_own(tmp_path: Path) -> None:
    """A channel's commands do not wait behind the channel's runs, neither in the event loop nor for the database."""
    groups: list[str | None] = []

    async def note(state: State) -> State:
        groups.append(WORK_GROUP.get())
        return {"n": 1}

    async def noting(_: RunnableConfig) -> Graph:
        return StateGraph(State).add_node("note", note).add_edge(START, "note").compile()

    async with runtime(tmp_path) as (runs, _):
        runs.graphs = {"noting": noting}
        for group in ("telegram", "telegram/runs", None):
            WORK_GROUP.set(group)
            live = await runs.start(asking("noting"))
            await live.finished.wait()
    assert groups == ["telegram/runs", "telegram/runs", "/runs"]


async def test_an_evicted_run_is_freed_without_garbage_collection(tmp_path: Path) -> None:
    """Full collections are rare, so runs in reference cycles would fill the memory with their events."""
    async with runtime(tmp_path, RuntimeSettings(keep_s=0.0)) as (runs, _):
        gc.disable()
        try:
            live = await runs.start(asking("instant"))
            await live.finished.wait()
            events = weakref.ref(live.log)
            runs._finished_runs.remove(live.run_id)
            del live
            await anyio.wait_all_tasks_blocked()
            assert events() is None
        finally:
            gc.enable()


async def test_the_result_of_a_run_is_kept_once(tmp_path: Path) -> None:
    """The result is the data of the last `values` event, which repeats the previous one."""
    async with runtime(tmp_path) as (runs, _):
        request = replace(asking("agent"), input={"messages": [HumanMessage("x" * 200_000)]})
        live = await runs.start(request)
        await live.finished.wait()
        assert [event.name for event in live.log.subscribe().read()].count("values") > 1
        assert len(live.result) > 200_000
        assert live.stored_bytes < 250_000


async def test_stopping_waits_a_limited_time(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with runtime(tmp_path, RuntimeSettings(drain_s=0.01)) as (runs, graphs):
            live = await runs.start(asking("stubborn"))
            await graphs.reached.wait()
        assert graphs.stopped.is_set()
        assert live.finished.is_set()
        graphs.gate.set()
    async with runtime(tmp_path) as (again, _):
        assert (await again.get(THREAD, live.run_id)).status == "interrupted"


async def test_runs_of_different_threads_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, graphs):
        await runs.start(asking("slow"))
        await graphs.reached.wait()
        for _ in range(3):
            other = await runs.start(asking("instant", thread_id=str(uuid4())))
            with anyio.fail_after(20):
                await other.finished.wait()
            assert other.row.status == "success"


async def test_many_starts_at_once_on_one_thread(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, _):
        lives = []

        async def start() -> None:
            lives.append(await runs.start(asking("instant", 1)))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(start)
        with anyio.fail_after(20):
            for live in lives:
                await live.finished.wait()
        assert {live.row.status for live in lives} == {"success"}
        assert len(await runs.rows.list_by_thread(THREAD, limit=100)) == 20
        assert (await runs.threads.get(THREAD)).status == "idle"


async def test_only_one_of_many_rejecting_starts_succeeds(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, graphs):
        busy = 0

        async def start() -> None:
            nonlocal busy
            try:
                await runs.start(asking("slow", multitask="reject"))
            except ThreadBusyError:
                busy += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(start)
        assert busy == 4
        graphs.gate.set()


async def test_a_start_that_fails_frees_the_thread(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, _):
        missing = GraphRunRequest(
            thread_id=THREAD, assistant_id="instant", modes=parse_stream_modes(None)
        )
        with pytest.raises(RowNotFound):
            await runs.start(missing)
        with garbage_made() as garbage, suppress(RowNotFound):
            await runs.start(missing)
        assert [found for found in garbage if isinstance(found, RowNotFound | LocalRun)] == []
        live = await runs.start(asking("instant", multitask="reject"))
        await live.finished.wait()
        assert live.row.status == "success"


@pytest.mark.parametrize("thread_id", [THREAD, None])
async def test_a_start_that_is_written_too_late_is_undone(
    url: str, tmp_path: Path, thread_id: str | None
) -> None:
    settings = RuntimeSettings(write_s=0.5, sweep_s=0.1)
    async with runtime(tmp_path, settings, url) as (runs, graphs):
        await runs.threads.create(THREAD, {}, now=1.0)
        locked = "thread" if thread_id else "run_request"
        with psycopg.connect(url) as other:
            other.execute(f"LOCK TABLE {locked} IN EXCLUSIVE MODE")
            late = replace(asking("slow"), thread_id=thread_id)
            with pytest.raises(StoreUnavailable):
                await runs.start(late)
            assert runs.active == []
            other.execute(
                "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ "
                "BEGIN INSERT INTO noted VALUES (NEW.run_id); RETURN NEW; END $$"
            )
            other.execute("CREATE TABLE noted (run_id text)")
            other.execute(
                "CREATE TRIGGER note AFTER INSERT ON run_request FOR EACH ROW EXECUTE FUNCTION note()"
            )
        database = runs.rows.requests._database
        await eventually(lambda: database.read("SELECT run_id FROM noted"))
        await eventually(lambda: database.read("SELECT run_id FROM run_request"), operator.not_)
        assert await runs.rows.list_by_thread(THREAD) == []
        assert (await runs.threads.get(THREAD)).status == "idle"
        assert graphs.calls == {}


async def test_a_start_that_will_be_undone_is_not_found_by_its_key(
    url: str, tmp_path: Path
) -> None:
    settings = RuntimeSettings(write_s=3.0, sweep_s=0.1)
    async with runtime(tmp_path, settings, url) as (runs, _):
        await runs.threads.create(THREAD, {}, now=1.0)
        asked = replace(asking("instant"), start_key="m")
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE thread IN EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable):
                await runs.start(asked)
        live = await runs.start(asked)
        await live.finished.wait()
        assert live.row.status == "success"
        with pytest.raises(RunExists) as found:
            await runs.start(replace(asked, multitask="reject"))
        assert found.value.run_id == live.run_id
        assert [run.run_id for run in await runs.rows.list_by_thread(THREAD)] == [live.run_id]
        assert (await runs.threads.get(THREAD)).status == "idle"


async def test_a_graph_that_cannot_be_built_is_a_failed_run(tmp_path: Path) -> None:
    def broken(_config: object) -> None:
        raise ValueError("no model is configured")

    async with runtime(tmp_path) as (runs, _):
        runs.graphs = {"broken": broken}  # type: ignore[dict-item]
        live = await runs.start(asking("broken"))
        await live.finished.wait()
        assert live.row.error == {"error": "ValueError", "message": "no model is configured"}
        assert [event.name for event in live.log.subscribe().read()] == ["metadata", "error", "end"]


async def test_ended_runs_are_kept_for_a_while(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, _):
        lives = [await runs.start(asking("instant")) for _ in range(3)]
        for live in lives:
            await live.finished.wait()
            assert runs.find(THREAD, live.run_id) is live
            assert runs.find(str(uuid4()), live.run_id) is None
    size = lives[0].stored_bytes
    recent = FinishedRuns(keep_s=60, keep_bytes=2 * size + 10)
    for second, live in enumerate(lives):
        recent.add(live, now=float(second))
    assert [recent.find(live.run_id) for live in lives] == [None, *lives[1:]]
    recent.evict(now=60.5)
    assert recent.find(lives[1].run_id) is lives[1]
    recent.evict(now=61.5)
    assert [recent.find(live.run_id) for live in lives] == [None, None, lives[2]]
    recent.remove_thread(THREAD)
    assert recent.find(lives[2].run_id) is None


def ended_run(thread_id: str, state: bytes) -> LocalRun:
    """Return a finished run that sent `state`."""
    live = new_local_run(
        asking("instant", thread_id=thread_id),
        run_id=str(uuid4()),
        thread_id=thread_id,
        graph_id="instant",
        created_at=0.0,
        temporary=False,
    )
    live.log.append("values", state)
    live.row = replace(live.row, status="success")
    live._result = None
    live.close_log()
    return live


async def test_the_oldest_of_many_ended_runs_are_sealed_and_remain_readable(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, _):
        requests = [asking("instant", thread_id=str(uuid4())) for _ in range(2)]
        requests.append(replace(asking("instant"), thread_id=None))
        lives = [await runs.start(request) for request in requests]
        for live in lives:
            await live.finished.wait()
        before = [(live.log.subscribe().read(), live.result, live.row) for live in lives]
        texts = random.Random(7).randbytes(FRESH_BYTES // 8).hex().encode()  # noqa: S311
        for _ in range(4):
            runs._finished_runs.add(ended_run(str(uuid4()), b'"%b"' % texts), now=0.0)
        for live, (events, result, row) in zip(lives, before, strict=True):
            found = runs.find(live.thread_id, live.run_id)
            assert found is not None
            for after in range(len(events)):
                assert found.log.subscribe(after).read() == events[after:]
            assert found.result == result
            assert (await runs.get(live.thread_id, live.run_id)).kwargs == row.kwargs


def test_the_oldest_of_many_long_threads_are_sealed() -> None:
    recent = FinishedRuns(keep_s=60, keep_bytes=100_000_000)
    states = [b'"%b"' % (b"%06d" % n * 200_000) for n in range(40)]
    lives = [ended_run(str(uuid4()), state) for state in states]
    for live in lives:
        recent.add(live, now=0.0)
    assert recent.bytes == sum(live.stored_bytes for live in lives)
    assert recent.bytes <= FRESH_BYTES + 40 * len(states[0]) / 50
    assert lives[0].stored_bytes < len(states[0]) / 50
    assert lives[-1].stored_bytes > len(states[0])
    assert [live.log.final_state() for live in lives] == states
    recent.evict(now=100.0)
    assert recent.bytes == 0


async def test_checkpoints_of_a_long_conversation_stay_few(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (runs, _):
        for n in range(25):
            live = await runs.start(asking("instant", n))
            await live.finished.wait()
        follower = await runs.start(asking("instant", 0))
        await follower.finished.wait()
    async with open_checkpointer(tmp_path) as saver:
        config = {"configurable": {"thread_id": THREAD}}
        kept = [one async for one in saver.alist(config)]  # type: ignore[arg-type]
        assert KEEP <= len(kept) <= KEEP + KEEP // 2
