"""A full disk under the runtime: runs wait for free space, and continue."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START, StateGraph
from typing_extensions import override

from agent.options import take_steering_messages
from gateway.runtime.execution import Graph
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import Durability, GraphRunRequest
from gateway.runtime.runs import RunManager, RuntimeSettings
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import CheckpointSaver, open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.errors import StoreUnavailable
from tests.eventually import eventually
from tests.fakes.disk import full_disk
from tests.fakes.graphs import Node, State

THREAD = "0b63b403-e0ed-40b2-9589-e740f38a62a3"
LARGE = "x" * 4_000_000
"""Bytes, more than the files hold before, so they must grow."""


class Gate:
    """A graph that waits in its first node, returns a large value, and counts its nodes' calls."""

    def __init__(self) -> None:
        self.reached, self.opened = anyio.Event(), anyio.Event()
        self.calls: list[str] = []

    async def source(self, _config: RunnableConfig) -> Graph:
        builder = StateGraph(State)
        large: Node = self._large
        last: Node = self._last
        builder.add_node("large", large)
        builder.add_node("last", last)
        builder.add_edge(START, "large")
        builder.add_edge("large", "last")
        builder.add_edge("last", END)
        return builder.compile()

    async def _large(self, _state: State) -> State:
        self.calls.append("large")
        self.reached.set()
        await self.opened.wait()
        return {"title": LARGE}

    async def _last(self, _state: State, config: RunnableConfig) -> State:
        self.calls.append("last")
        return {"n": 7, "messages": take_steering_messages(config)}


@asynccontextmanager
async def runtime(
    home: Path,
) -> AsyncIterator[tuple[RunManager, Gate, Database]]:
    gate = Gate()
    async with (
        Database.open(StoreConfig(), home) as database,
        open_checkpointer(home) as saver,
        RunManager(
            database, {"large": gate.source}, saver, settings=RuntimeSettings(sweep_s=0.05)
        ) as runs,
    ):
        yield runs, gate, database


async def start(runs: RunManager, durability: Durability, *, restartable: bool = False) -> LocalRun:
    request = GraphRunRequest(
        thread_id=THREAD,
        assistant_id="large",
        modes=parse_stream_modes("values"),
        input={"n": 1},
        create_thread=True,
        durability=durability,
        restartable=restartable,
    )
    return await runs.start(request)


def waiting_runs(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("waits for the database")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_waits_for_room_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, durability: Durability
) -> None:
    async with runtime(tmp_path) as (runs, gate, _):
        live = await start(runs, durability)
        await gate.reached.wait()
        with full_disk():
            gate.opened.set()
            await eventually(lambda: waiting_runs(caplog))
            assert "full" in runs.outage
            assert runs.count_by_status() == {"running": 1}
        await live.finished.wait()
        assert live.row.status == "success"
        assert (await runs.rows.get(THREAD, live.run_id)).status == "success"
        assert (await runs.threads.get(THREAD)).status == "idle"
        async with runs.open_graph("large", {}, "threads.read") as graph:
            state = await graph.aget_state({"configurable": {"thread_id": THREAD}})
        assert (state.values["n"], state.values["title"]) == (7, LARGE)
        assert runs.outage == ""
    assert gate.calls == ["large", "last"]


async def test_the_end_of_a_run_waits_for_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There is room for the checkpoints, but not for the title in the thread's row."""
    async with runtime(tmp_path) as (runs, gate, database):
        live = await start(runs, "sync")
        await gate.reached.wait()
        await _limit_pages(database, extra=4)
        gate.opened.set()
        await eventually(lambda: waiting_runs(caplog))
        assert (await runs.rows.get(THREAD, live.run_id)).status == "running"
        assert not live.finished.is_set()
        await _limit_pages(database, extra=100_000)
        await live.finished.wait()
        assert live.row.status == "success"
        thread = await runs.threads.get(THREAD)
        assert (thread.status, thread.title) == ("idle", LARGE)


async def test_a_run_that_waits_for_room_can_be_canceled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run's end is written as soon as there is room."""
    async with runtime(tmp_path) as (runs, gate, _):
        live = await start(runs, "sync")
        await gate.reached.wait()
        with full_disk(1):
            gate.opened.set()
            await eventually(lambda: waiting_runs(caplog))
            await runs.cancel(THREAD, live.run_id)
            with anyio.fail_after(30):
                await live.finished.wait()
            assert live.row.status == "interrupted"
            assert (await runs.rows.get(THREAD, live.run_id)).status == "running"
        await eventually(partial(_has_status, runs, live, "interrupted"))
        assert (await runs.threads.get(THREAD)).status == "interrupted"


async def test_an_injected_message_that_cannot_be_stored_is_refused(
    tmp_path: Path,
) -> None:
    """The sender sends it again. If the run had accepted it anyway, it would be answered twice."""
    async with runtime(tmp_path) as (runs, gate, _):
        live = await start(runs, "sync", restartable=True)
        await gate.reached.wait()
        first, refused = ({"role": "user", "content": text} for text in ("first", "refused"))
        assert await runs.inject(THREAD, live.run_id, first) == live.run_id
        with full_disk(1), pytest.raises(StoreUnavailable):
            await runs.inject(THREAD, live.run_id, refused)
        gate.opened.set()
        await live.finished.wait()
        heard = orjson.loads(live.result)["messages"]
        assert [message["content"] for message in heard] == ["first"]


class UnreadableSaver(CheckpointSaver):
    """A saver whose reads share a transaction that fails, while `fails` is set."""

    def __init__(self, saver: CheckpointSaver) -> None:
        vars(self).update(vars(saver))
        self.fails = False

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.fails:
            raise StoreUnavailable("The database could not be written (disk full).")
        return await super().aget_tuple(config)


async def test_a_canceled_run_ends_though_its_state_cannot_be_read(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        open_checkpointer(tmp_path) as opened,
    ):
        saver = UnreadableSaver(opened)
        async with RunManager(database, {"large": gate.source}, saver) as runs:
            live = await start(runs, "sync")
            await gate.reached.wait()
            saver.fails = True
            await runs.cancel(THREAD, live.run_id)
            await live.finished.wait()
            saver.fails = False
            assert (await runs.rows.get(THREAD, live.run_id)).status == "interrupted"
            assert live.row.status == "interrupted"


async def _has_status(runs: RunManager, live: LocalRun, status: str) -> bool:
    return (await runs.rows.get(THREAD, live.run_id)).status == status


async def _limit_pages(database: Database, *, extra: int) -> None:
    """Let the database grow by this many pages."""
    pages = await database.transaction(lambda tx: tx.run("PRAGMA page_count")[0]["page_count"])
    await database.transaction(lambda tx: tx.run(f"PRAGMA max_page_count = {pages + extra}"))
