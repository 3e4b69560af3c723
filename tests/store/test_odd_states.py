"""Values that no store accepts, in the state of any graph: the thread stays usable, on both engines."""

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from gateway.runtime.serialization import dumps
from store.checkpoint_chunks import SIZE
from tests.store.conftest import SaverOpener


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


class State(TypedDict, total=False):
    """The state of a graph that keeps anything."""

    value: Any
    rounds: int
    messages: Annotated[list[AnyMessage], add_messages]


ODD: list[Any] = [
    2**63,
    2**64,
    -(2**70),
    nested(150),
    nested(300),
    "a\ud800b",
    {"\udc00": 1},
    "a\0b",
    {"a\0": [float("nan"), float("inf")]},
    "x" * 1_200_000,
    object(),
    1j,
    range(3),
    lambda: None,
    {2**70: "key"},
    ({1j}, "tuple"),
    AIMessage("a\0\ud800", additional_kwargs={"deep": nested(300)}),
    HumanMessage("x", additional_kwargs={"n": 2**70, "o": object()}),
]
odd = pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


@odd
async def test_no_value_of_a_graph_makes_its_thread_unusable(
    open_saver: SaverOpener, value: object
) -> None:
    def put(state: State) -> State:
        extra = {"value": value}
        said: list[AnyMessage] = [AIMessage("x", additional_kwargs=extra) for _ in range(SIZE)]
        return {"value": value, "rounds": state.get("rounds", 0) + 1, "messages": said}

    builder = StateGraph(State)
    builder.add_node("put", put)
    builder.add_edge(START, "put")
    for rounds in (1, 2):
        async with open_saver() as saver:
            graph = builder.compile(checkpointer=saver)
            given: State = {"value": value}
            state = await graph.ainvoke(given, CONFIG, durability="sync")
            assert state["rounds"] == rounds
    async with open_saver() as saver:
        graph = builder.compile(checkpointer=saver)
        saved = (await graph.aget_state(CONFIG)).values
        assert (saved["rounds"], len(saved["messages"])) == (2, 2 * SIZE)
        dumps(saved)


@odd
async def test_such_values_wait_for_an_answer_and_are_sent_to_other_nodes(
    open_saver: SaverOpener, value: object
) -> None:
    def ask(state: State) -> Command[Any]:
        interrupt(value)
        return Command(goto=Send("count", {"value": value, "rounds": 1}))

    def count(state: State) -> State:
        return {"rounds": state["rounds"] + 1}

    builder = StateGraph(State)
    builder.add_node("ask", ask, destinations=("count",))
    builder.add_node("count", count)
    builder.add_edge(START, "ask")
    async with open_saver() as saver:
        graph = builder.compile(checkpointer=saver)
        given: State = {"rounds": 0}
        await graph.ainvoke(given, CONFIG, durability="sync")
    async with open_saver() as saver:
        graph = builder.compile(checkpointer=saver)
        assert (await graph.aget_state(CONFIG)).interrupts
        state = await graph.ainvoke(Command(resume=[value]), CONFIG, durability="sync")
        assert state["rounds"] == 2
