"""Threads of graphs with DeltaChannels: LangGraph saves their values only in some checkpoints, and none gets lost."""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability, Overwrite

from store.checkpoints import CheckpointSaver
from tests.store.conftest import SaverOpener

Graph = CompiledStateGraph[Any, Any, Any, Any]
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _merge(files: dict[str, int], writes: Sequence[dict[str, int]]) -> dict[str, int]:
    merged = dict(files)
    for write in writes:
        merged |= write
    return merged


class State(TypedDict, total=False):
    """A conversation, and files that are written rarely."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    files: Annotated[dict[str, int], DeltaChannel(_merge)]
    turn: int


class OftenSaved(TypedDict, total=False):
    """A conversation that is saved whole in every sixth checkpoint that changes it."""

    messages: Annotated[
        list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=6)
    ]


class Plain(TypedDict, total=False):
    """The conversation in graphs without a DeltaChannel."""

    messages: Annotated[list[AnyMessage], add_messages]


def _answer(state: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the schemas
    said = state["messages"][-1].content
    files = {"files": {"once.txt": 1}} if said == "0" else {}
    return {"messages": [AIMessage(f"re {said}", id=f"a{said}")], **files}


def _graph(saver: BaseCheckpointSaver[str] | bool, schema: type[Any] = State) -> Graph:
    builder = StateGraph(schema)
    builder.add_node("answer", _answer)
    builder.add_node("after", lambda _state: {})
    builder.add_edge(START, "answer").add_edge("answer", "after")
    return builder.compile(checkpointer=saver)


async def _turns(
    graph: Graph,
    saver: CheckpointSaver | None,
    numbers: range,
    durability: Durability = "sync",
    thread: RunnableConfig = THREAD,
) -> None:
    for number in numbers:
        said = {"messages": [HumanMessage(str(number), id=f"h{number}")]}
        await graph.ainvoke(said, thread, durability=durability)
        if saver is not None:
            await saver.trim_thread("t")


async def _said(graph: Graph, thread: RunnableConfig = THREAD) -> list[str]:
    state = await graph.aget_state(thread)
    return [message.content for message in state.values["messages"]]


def _expected(turns: int) -> list[str]:
    return [text for number in range(turns) for text in (str(number), f"re {number}")]


@pytest.mark.parametrize("schema", [State, OftenSaved])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_sixty_turns_keep_every_message(
    open_saver: SaverOpener, schema: type[Any], durability: Durability
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver, schema)
        await _turns(graph, saver, range(60), durability)  # 120 updates: a value is saved after 100
        assert await _said(graph) == _expected(60)
    async with open_saver() as saver:  # after a restart
        graph = _graph(saver, schema)
        assert await _said(graph) == _expected(60)
        ids = [one.checkpoint["id"] async for one in saver.alist(THREAD)]
        assert len(ids) <= 30


async def test_a_channel_that_changed_once_long_ago_keeps_its_value(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await _turns(graph, saver, range(60))
        assert (await graph.aget_state(THREAD)).values["files"] == {"once.txt": 1}


async def test_a_thread_that_is_pruned_to_its_last_checkpoint_goes_on(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        for begin in range(0, 30, 3):
            await _turns(graph, None, range(begin, begin + 3))
            await saver.trim_thread("t", keep=1)
            assert await _said(graph) == _expected(begin + 3)
        assert len([one async for one in saver.alist(THREAD)]) == 1
        await saver.acopy_thread("t", "u")
        assert await _said(graph, {"configurable": {"thread_id": "u"}}) == _expected(30)


async def test_a_thread_that_is_trimmed_while_it_is_read_is_read_whole(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver, anyio.create_task_group() as tasks:
        graph = _graph(saver)

        async def trim() -> None:
            while True:
                await saver.trim_thread("t", keep=1)
                saver._counts.clear()

        for _ in range(3):
            tasks.start_soon(trim)
        for number in range(60):
            await _turns(graph, None, range(number, number + 1))
            assert await _said(graph) == _expected(number + 1)
        tasks.cancel_scope.cancel()


async def test_every_state_that_is_kept_is_as_in_a_thread_that_is_never_trimmed(
    open_saver: SaverOpener,
) -> None:
    """This includes states of branches, states after messages were removed, and after the whole list was replaced."""
    async with open_saver() as saver:
        untouched = InMemorySaver()
        histories = []
        for checkpointer in (saver, untouched):
            graph = _graph(checkpointer)
            trimmed = saver if checkpointer is saver else None
            await _turns(graph, trimmed, range(12))
            removed = [RemoveMessage("h3"), AIMessage("changed", id="a4")]
            await graph.aupdate_state(THREAD, {"messages": removed}, as_node="answer")
            await _turns(graph, trimmed, range(12, 18))
            # A branch from an earlier state becomes the newest state.
            earlier = [one async for one in graph.aget_state_history(THREAD)][5]
            await _turns(graph, trimmed, range(18, 20), thread=earlier.config)
            await _turns(graph, trimmed, range(20, 23))
            replaced = Overwrite([HumanMessage("new", id="n")])
            await graph.aupdate_state(THREAD, {"messages": replaced}, as_node="answer")
            await _turns(graph, trimmed, range(23, 29))
            everything = [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("newer", id="m")]
            await graph.aupdate_state(THREAD, {"messages": everything}, as_node="answer")
            await _turns(graph, trimmed, range(29, 33))
            histories.append([one async for one in graph.aget_state_history(THREAD)])
        kept, whole = histories
        assert 20 <= len(kept) <= 30
        for ours, theirs in zip(kept, whole, strict=False):
            assert ours.values == theirs.values


async def test_the_memory_of_a_subgraph_is_kept(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        child = _graph(True)
        builder = StateGraph(Plain)
        builder.add_node("child", child)
        builder.add_node("idle", lambda _state: {})
        builder.add_conditional_edges(
            START, lambda s: "idle" if s["messages"][-1].content == "idle" else "child"
        )
        parent = builder.compile(checkpointer=saver)
        await _turns(parent, saver, range(15))
        for number in range(40):  # the subgraph is idle, and its checkpoints become old
            await parent.ainvoke({"messages": [HumanMessage("idle", id=f"i{number}")]}, THREAD)
            await saver.trim_thread("t")
        await parent.ainvoke({"messages": [HumanMessage("15", id="h15")]}, THREAD)
        inner: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "child"}}
        said = await _said(child.copy(update={"checkpointer": saver}), inner)
        assert [text for text in said if text != "idle"] == _expected(16)


async def test_a_conversation_that_was_saved_whole_goes_on_as_deltas(
    open_saver: SaverOpener,
) -> None:
    """The author of a graph added a DeltaChannel: the earlier list, in chunks, is its first value."""
    async with open_saver() as saver:
        await _turns(_graph(saver, Plain), saver, range(20))
        graph = _graph(saver)
        await _turns(graph, saver, range(20, 50))
        assert await _said(graph) == _expected(50)
        again = _graph(saver, Plain)
        assert await _said(again) == _expected(50)


async def test_a_run_that_is_rolled_back_leaves_nothing(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await _turns(graph, saver, range(15))
        await saver.trim_thread("t", keep=1)
        for _ in range(2):
            run: RunnableConfig = {"configurable": {"thread_id": "t", "run_id": "r"}}
            await graph.ainvoke({"messages": [HumanMessage("wrong", id="w")]}, run)
            await saver.rollback_run("t", "r")
            assert await _said(graph) == _expected(15)
        await _turns(graph, saver, range(15, 30))
        assert await _said(graph) == _expected(30)
