"""Runs on long threads: which messages they compare with the saved ones, and when."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import anyio
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph

from gateway.runtime.execution import Graph
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoint_chunks import SIZE
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.message_fingerprint import MessageFingerprint

THREAD = "0b63b403-e0ed-40b2-9589-e740f38a62a3"
CHUNKS = 5


async def _node(state: MessagesState) -> MessagesState:
    """Answer with the first message's text. On request, change that message in place and fail."""
    first, last = state["messages"][0], state["messages"][-1]
    if last.content == "spoil it":
        first.content = "spoiled"
        raise RuntimeError("boom")
    return {"messages": [AIMessage(str(first.content))]}


async def _graph(_config: RunnableConfig) -> Graph:
    builder = StateGraph(MessagesState)
    builder.add_node("node", _node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


@asynccontextmanager
async def _runtime(home: Path) -> AsyncIterator[RunManager]:
    async with (
        Database.open(StoreConfig(), home) as database,
        open_checkpointer(home) as checkpointer,
        RunManager(database, {"graph": _graph}, checkpointer) as runs,
    ):
        yield runs


async def _run(runs: RunManager, *texts: str) -> LocalRun:
    live = await runs.start(
        GraphRunRequest(
            thread_id=THREAD,
            assistant_id="graph",
            modes=parse_stream_modes("values"),
            input={"messages": [HumanMessage(text) for text in texts]},
            create_thread=True,
        )
    )
    with anyio.fail_after(30):
        await live.finished.wait()
    return live


async def _comparisons(runs: RunManager, text: str) -> int:
    """Return how many chunks of messages a run compares with the saved ones."""
    compared = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal compared
        compared += event == "call" and frame.f_code is MessageFingerprint.matches.__code__

    sys.setprofile(count)
    try:
        await _run(runs, text)
    finally:
        sys.setprofile(None)
    return compared


async def test_a_run_after_a_successful_one_compares_messages_only_after_its_node(
    tmp_path: Path,
) -> None:
    async with _runtime(tmp_path) as runs:
        await _run(runs, *(f"number {n}" for n in range(CHUNKS * SIZE)))
        assert await _comparisons(runs, "again") == CHUNKS


async def test_in_place_changes_of_a_failed_run_are_gone_in_the_next_run(tmp_path: Path) -> None:
    async with _runtime(tmp_path) as runs:
        await _run(runs, *(f"number {n}" for n in range(CHUNKS * SIZE)))
        assert (await _run(runs, "spoil it")).row.status == "error"
        answered = await _run(runs, "again")
        assert answered.row.status == "success"
        assert b'"content":"number 0"' in answered.result.rpartition(b"again")[2]
        assert b"spoiled" not in answered.result
