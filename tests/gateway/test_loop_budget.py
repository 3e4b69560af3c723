"""Runs with many events at once yield the event loop to other tasks after a time slice."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from pydantic import ConfigDict
from typing_extensions import TypedDict, override

from gateway.runtime.execution import SLICE_S, LoopBudget
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.fakes.scripted import ScriptedChatModel

EVENTS = 20_000
TOKENS = 2_000


async def test_runs_take_turns() -> None:
    now = 0.0
    budget = LoopBudget(lambda: now)
    order: list[int] = []

    async def encode(number: int) -> None:
        nonlocal now
        for _ in range(9):
            order.append(number)
            now += SLICE_S
            if budget.is_spent():
                await budget.next_turn()

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(encode, number)
        for _ in range(100):
            await checkpoint()
    assert len(order) == 27
    first = [order.index(number) for number in range(3)]
    last = [len(order) - 1 - order[::-1].index(number) for number in range(3)]
    assert max(first) < min(last), "all runs begin before the first one ends"


class State(TypedDict):
    done: bool


async def burst(state: State) -> State:
    """Write all events without awaiting in between."""
    write = get_stream_writer()
    for number in range(EVENTS):
        write({"n": number})
    return {"done": True}


def burst_graph() -> Any:  # noqa: ANN401 - LangGraph's own type has four parameters
    graph = StateGraph(State)
    graph.add_node("burst", burst)
    graph.add_edge(START, "burst")
    graph.add_edge("burst", END)
    return graph.compile()


async def test_a_burst_of_events_does_not_keep_other_tasks_waiting(tmp_path: Path) -> None:
    async def source(_config: object) -> Any:  # noqa: ANN401
        return burst_graph()

    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        open_checkpointer(tmp_path) as checkpointer,
        RunManager(database, {"burst": source}, checkpointer) as runs,
    ):
        request = GraphRunRequest(
            thread_id=None,
            assistant_id="burst",
            modes=parse_stream_modes("custom"),
            input={"done": False},
        )
        live = await runs.start(request)
        largest = before = 0
        while not live.finished.is_set():
            await checkpoint()
            largest, before = max(largest, live.log.last_id - before), live.log.last_id
    assert before > EVENTS
    assert largest < EVENTS / 4


class OtherTask:
    """Counts how often another task has run."""

    turns = 0


class BurstModel(ScriptedChatModel):
    """Produces its whole answer at once. At each token, it records how often another task has run."""

    other: OtherTask
    seen: list[int]
    model_config = ConfigDict(arbitrary_types_allowed=True)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(TOKENS):
            self.seen.append(self.other.turns)
            yield ChatGenerationChunk(message=AIMessageChunk(content="a "))


async def test_an_answer_that_arrives_at_once_does_not_keep_other_tasks_waiting(
    tmp_path: Path,
) -> None:
    other = OtherTask()
    model = BurstModel(other=other, seen=[])

    async def answer(state: State) -> State:
        await model.ainvoke("hi")
        return {"done": True}

    async def source(_config: object) -> Any:  # noqa: ANN401
        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        return graph.compile()

    async with (
        Database.open(StoreConfig(), tmp_path) as database,
        open_checkpointer(tmp_path) as checkpointer,
        RunManager(database, {"answer": source}, checkpointer) as runs,
    ):
        request = GraphRunRequest(
            thread_id=None,
            assistant_id="answer",
            modes=parse_stream_modes("messages-tuple"),
            input={"done": False},
        )
        live = await runs.start(request)
        while not live.finished.is_set():
            other.turns += 1
            await checkpoint()
    assert live.row.status == "success"
    assert len(model.seen) == TOKENS
    assert len(set(model.seen)) >= 5, "other tasks ran between the tokens"
