"""Checkpoints: reading and listing them like LangGraph's own saver, trimming, and rolling back runs."""

from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import anyio
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import UUID
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from store.checkpoints import CheckpointSaver, open_checkpointer
from store.errors import StoreUnavailable
from tests.store.conftest import SaverOpener


class State(TypedDict, total=False):
    n: int
    answer: str


async def _one(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


async def _ask(state: State) -> State:
    return {"answer": interrupt("approve?")}


def _graph(saver: CheckpointSaver, *names: str) -> CompiledStateGraph[Any, Any, Any, Any]:
    nodes = {"one": _one, "ask": _ask}
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, nodes[name])
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def _thread(thread_id: str, **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, **more}}


async def _ids(saver: CheckpointSaver, thread_id: str) -> list[str]:
    found = saver.alist(_thread(thread_id))
    return [one.config["configurable"]["checkpoint_id"] async for one in found]


async def _count_writes(saver: CheckpointSaver, thread_id: str) -> int:
    sql = "SELECT count(*) AS n FROM writes WHERE thread_id = :thread_id"
    rows = await saver._writer.submit(lambda tx: tx.run(sql, {"thread_id": thread_id}))
    return int(rows[0]["n"])


async def test_saved_checkpoints_survive_a_restart(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        assert await saver.aget_tuple(_thread("t")) is None
        await _graph(saver, "one").ainvoke({"n": 1}, _thread("t"))
    async with open_saver() as saver:
        assert (await _graph(saver, "one").aget_state(_thread("t"))).values == {"n": 2}


async def test_it_reads_as_langgraphs_own_saver_does(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoints.db")
    async with (
        open_checkpointer(tmp_path) as saver,
        AsyncSqliteSaver.from_conn_string(path) as langgraphs,
    ):
        await _graph(saver, "one", "ask").ainvoke({"n": 1}, _thread("t"))
        config = _thread("t", checkpoint_ns="")
        ours = await saver.aget_tuple(config)
        theirs = await langgraphs.aget_tuple(config)
        assert ours == theirs
        assert ours is not None
        assert ours.pending_writes
        older = await _ids(saver, "t")
        at = _thread("t", checkpoint_ns="", checkpoint_id=older[-1])
        assert await saver.aget_tuple(at) == await langgraphs.aget_tuple(at)


async def test_it_lists_as_langgraphs_own_saver_does(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoints.db")
    async with (
        open_checkpointer(tmp_path) as saver,
        AsyncSqliteSaver.from_conn_string(path) as langgraphs,
    ):
        for name in ("t", "u"):
            await _graph(saver, "one", "ask").ainvoke({"n": 1}, _thread(name, run_id=f"run-{name}"))
        newest, *_ = await _ids(saver, "t")
        before = _thread("t", checkpoint_ns="", checkpoint_id=newest)
        listings: list[tuple[RunnableConfig | None, dict[str, Any]]] = [
            (None, {}),
            (None, {"limit": 3}),
            (_thread("t"), {}),
            (_thread("t", checkpoint_ns=""), {"filter": {"source": "loop"}}),
            (_thread("t"), {"filter": {"source": "loop", "step": 1}, "limit": 1}),
            (_thread("t"), {"before": before}),
            (before, {}),
            (_thread("nobody"), {}),
        ]
        for config, options in listings:
            theirs = [one async for one in langgraphs.alist(config, **options)]
            assert [one async for one in saver.alist(config, **options)] == theirs


async def test_many_threads_can_be_saved_at_once(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, "one")

        async def turns(thread_id: str) -> None:
            for _ in range(3):
                await graph.ainvoke({}, _thread(thread_id), durability="sync")

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(turns, str(number))
        for number in range(20):
            assert (await graph.aget_state(_thread(str(number)))).values == {"n": 3}


async def test_trim_keeps_the_last_checkpoints_and_the_question(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, "one", "ask")
        for _ in range(12):
            await graph.ainvoke({"n": 1}, _thread("t"))
        await _graph(saver, "one").ainvoke({"n": 1}, _thread("other"))
        before = await _ids(saver, "t")
        assert len(before) > 20
        await saver.trim_thread("t")
        assert await _ids(saver, "t") == before[:20]
        assert await _ids(saver, "other") != []
        state = await graph.aget_state(_thread("t"))
        assert state.interrupts[0].value == "approve?"
        assert (await graph.ainvoke(Command(resume="yes"), _thread("t")))["answer"] == "yes"
        writes = await _count_writes(saver, "t")
        await saver.trim_thread("t", keep=1)
        assert await _count_writes(saver, "t") < writes
        assert len(await _ids(saver, "t")) == 1
        assert (await graph.ainvoke({"n": 5}, _thread("t")))["n"] == 6


async def test_a_thread_is_trimmed_once_in_some_turns(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        counts: list[int] = []
        for _ in range(20):
            await _graph(saver, "one").ainvoke({}, _thread("t"))
            await saver.trim_thread("t")
            counts.append(len(await _ids(saver, "t")))
        assert max(counts) <= 30
        trimmed = [later for earlier, later in pairwise(counts) if later <= earlier]
        assert trimmed
        assert set(trimmed) == {20}
        assert len(trimmed) <= 5


async def test_trim_after_a_restart_counts_what_is_there(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        for _ in range(10):
            await _graph(saver, "one").ainvoke({}, _thread("t"))
    async with open_saver() as saver:
        await saver.trim_thread("t")
        assert len(await _ids(saver, "t")) == 20


async def test_trim_spares_the_memory_of_a_subgraph(open_saver: SaverOpener) -> None:
    """A namespace without a task ID belongs to a subgraph with memory, whose newest checkpoint is kept."""
    async with open_saver() as saver:
        for namespace in ("child", "child", "tools:1"):
            config = _thread("t", checkpoint_ns=namespace)
            await saver.aput(config, empty_checkpoint(), {}, {})
        for _ in range(12):
            await _graph(saver, "one").ainvoke({}, _thread("t"))
        await saver.trim_thread("t")
        sql = "SELECT checkpoint_ns FROM checkpoints WHERE checkpoint_ns <> ''"
        rows = await saver._writer.submit(lambda tx: tx.run(sql))
        assert [row["checkpoint_ns"] for row in rows] == ["child"]


async def test_a_forgotten_run_leaves_no_trace(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, "one")
        await graph.ainvoke({"n": 1}, _thread("t", run_id="first"))
        before = await _ids(saver, "t")
        await graph.ainvoke({"n": 50}, _thread("t", run_id="second"))
        await saver.rollback_run("t", "second")
        assert await _ids(saver, "t") == before
        assert (await graph.aget_state(_thread("t"))).values == {"n": 2}


async def test_results_of_a_forgotten_run_at_the_checkpoint_before_it_are_gone(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, "one")
        await graph.aupdate_state(_thread("t"), {"n": 88}, as_node="__start__")
        state = await graph.aget_state(_thread("t"))
        await saver.aput_writes(state.config, [("n", 89)], state.tasks[0].id)
        assert (await graph.aget_state(_thread("t"))).values == {"n": 89}
        await saver.rollback_run("t", "second")
        assert (await graph.aget_state(_thread("t"))).values == {"n": 88}


async def test_results_beside_a_question_stay_when_its_answer_is_forgotten(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, "ask")
        await graph.ainvoke({"n": 1}, _thread("t"))
        asked = await graph.aget_state(_thread("t"))
        await saver.aput_writes(asked.config, [("n", 5)], "beside")
        await saver.aput_writes(asked.config, [("answer", "yes")], asked.tasks[0].id)
        await saver.rollback_run("t", "second")
        found = await saver.aget_tuple(_thread("t"))
        assert found is not None
        kept = {(task, channel) for task, channel, _ in found.pending_writes or ()}
        assert kept == {(asked.tasks[0].id, "__interrupt__"), ("beside", "n")}


async def test_a_deleted_thread_is_gone(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        await _graph(saver, "one").ainvoke({}, _thread("t"))
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(_thread("t")) is None


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        async with open_checkpointer(tmp_path):
            pass


@pytest.mark.parametrize("is_forked", [False, True])
async def test_the_newest_checkpoint_is_the_last_one_after_the_clock_was_set_back(
    open_saver: SaverOpener, *, is_forked: bool
) -> None:
    """A process that is killed while the clock is ahead leaves a checkpoint with a future time."""
    async with open_saver() as saver:
        graph = _graph(saver, "one")
        await graph.ainvoke({"n": 1}, _thread("t"))
        first = await saver.aget_tuple(_thread("t"))
        assert first is not None
        ahead = _an_hour_later(first.checkpoint["id"])
        checkpoint = first.checkpoint.copy()
        checkpoint["id"] = ahead
        await saver.aput(_thread("t", checkpoint_ns=""), checkpoint, first.metadata, {})
        if is_forked:
            at = _thread("t", checkpoint_ns="", checkpoint_id=first.checkpoint["id"])
            await graph.aupdate_state(at, {"n": 7})
        else:
            await graph.ainvoke({"n": 6}, _thread("t"))
        assert (await graph.aget_state(_thread("t"))).values == {"n": 7}
        assert (await _ids(saver, "t"))[0] > ahead


def _an_hour_later(checkpoint_id: str) -> str:
    known = UUID(hex=checkpoint_id)
    time = known.time + 3600 * 10**7
    high, low = time >> 12, time & 0xFFF
    rest = known.int & ((1 << 64) - 1)
    return str(UUID(int=high << 80 | low << 64 | rest, version=6))
