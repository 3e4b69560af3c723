"""Graphs and tools without `async` call other graphs, from threads and from their own event loops."""

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt
from typing_extensions import override

from store.checkpoints import CheckpointSaver
from store.database import Database
from store.key_value_store import ItemStore
from tests.store.conftest import SaverOpener

Graph = CompiledStateGraph[Any, Any, Any, Any]
Node = Callable[["State"], "State"]
AT_ONCE = 40
"""More than the threads in which an event loop runs nodes without `async`."""


class State(TypedDict, total=False):
    """The data that the test graphs look up."""

    n: int


def _thread(name: object) -> RunnableConfig:
    return {"configurable": {"thread_id": str(name)}}


def _line(checkpointer: CheckpointSaver | None = None, **nodes: object) -> Graph:
    builder = StateGraph(State).add_sequence(list(nodes.items()))  # type: ignore[arg-type]  # nodes
    builder.add_edge(START, next(iter(nodes)))
    return builder.compile(checkpointer=checkpointer)


def _add(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


def _through(way: str, sub: Graph) -> Node:
    def invoke(state: State) -> State:
        return {"n": sub.invoke(state)["n"]}

    def stream(state: State) -> State:
        return {"n": list(sub.stream(state, stream_mode="values"))[-1]["n"]}

    def loop(state: State) -> State:
        return {"n": asyncio.run(sub.ainvoke(state))["n"]}

    return {"invoke": invoke, "stream": stream, "loop": loop}[way]


@pytest.mark.parametrize("way", ["invoke", "stream", "loop"])
async def test_many_nodes_call_subgraphs_at_once(open_saver: SaverOpener, way: str) -> None:
    async with open_saver() as saver:
        child = _through(way, _line(add=_add, again=_add))
        graph = _line(saver, first=child, second=_through(way, _line(deeper=child)))
        async with anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(graph.ainvoke, {"n": number}, _thread(number))
        for number in range(AT_ONCE):
            assert (await graph.aget_state(_thread(number))).values == {"n": number + 4}


class Model(BaseChatModel):
    """Calls its tool, if it has one, then answers."""

    has_tool: bool = False

    @property
    @override
    def _llm_type(self) -> str:
        return "asking"

    @override
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return Model(has_tool=bool(tools))

    @override
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        call = {"name": "research", "args": {"question": "who?"}, "id": "c1", "type": "tool_call"}
        is_asking = self.has_tool and messages[-1].type == "human"
        answer = AIMessage("" if is_asking else "found it", tool_calls=[call] if is_asking else [])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@pytest.mark.parametrize("way", ["invoke", "loop"])
async def test_tools_ask_agents(open_saver: SaverOpener, way: str) -> None:
    async with open_saver() as saver:
        writer = create_agent(Model())

        @tool
        def research(question: str) -> str:
            """Look something up."""
            asked: Any = {"messages": [HumanMessage(question)]}
            said = writer.invoke(asked) if way == "invoke" else asyncio.run(writer.ainvoke(asked))
            return str(said["messages"][-1].content)

        graph: Any = create_agent(Model(), [research], checkpointer=saver)
        async with anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(graph.ainvoke, {"messages": [HumanMessage("?")]}, _thread(number))
        for number in range(AT_ONCE):
            messages = (await graph.aget_state(_thread(number))).values["messages"]
            assert [one.content for one in messages] == ["?", "", "found it", "found it"]


async def test_a_question_of_a_subgraph_that_is_called_synchronously_is_answered(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        child = _line(ask=lambda _state: {"n": interrupt("how many?")})
        graph = _line(saver, call=_through("invoke", child))
        asked = await graph.ainvoke({"n": 1}, _thread("t"))
        assert asked["__interrupt__"][0].value == "how many?"
        assert (await graph.ainvoke(Command(resume=7), _thread("t")))["n"] == 7


async def test_every_method_works_from_another_thread(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _line(saver, add=_add)

        def work() -> None:
            graph.invoke({"n": 1}, _thread("t"))
            graph.update_state(_thread("t"), {"n": 5})
            assert graph.get_state(_thread("t")).values == {"n": 5}
            history = list(graph.get_state_history(_thread("t")))
            assert [one.values.get("n") for one in history] == [5, 2, 1, None]
            assert len(list(saver.list(_thread("t"), limit=2))) == 2
            saver.copy_thread("t", "u")
            assert graph.get_state(_thread("u")).values == {"n": 5}
            saver.delete_thread("t")
            assert saver.get_tuple(_thread("t")) is None

        async def listed() -> int:
            return len([one async for one in saver.alist(_thread("u"))])

        await asyncio.to_thread(work)
        assert await asyncio.to_thread(asyncio.run, listed()) == 4


async def test_a_synchronous_call_in_the_event_loop_is_refused(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:

        async def call(state: State) -> State:
            return {"n": child.invoke(state)["n"]}

        child = _line(add=_add)
        with pytest.raises(RuntimeError, match="would block the event loop"):
            await _line(saver, call=call).ainvoke({"n": 1}, _thread("t"))


async def test_items_are_stored_from_other_event_loops(database: Database) -> None:
    store = ItemStore(database)

    async def work() -> None:
        await store.aput(("a",), "k", {"n": 1})
        item = await store.aget(("a",), "k")
        assert item is not None
        assert item.value == {"n": 1}

    await asyncio.to_thread(asyncio.run, work())
    with pytest.raises(RuntimeError, match="would block the event loop"):
        store.get(("a",), "k")
