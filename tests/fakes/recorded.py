"""The graphs behind the recorded exchanges, reconstructed from the recorded answers."""

from typing import Annotated, Any, TypedDict

import anyio
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import StreamWriter, interrupt

from gateway.runtime.assistants import GraphSource
from gateway.runtime.execution import Graph
from tests.fakes.graphs import TokenModel

PACE = 0.02
"""Fraction of the recorded delays to wait."""

LONG_S = 1.0
"""A nap of this length lasts until the test ends it."""


class State(TypedDict, total=False):
    """The state of these graphs."""

    messages: Annotated[list[AnyMessage], add_messages]
    n: int
    answer: str
    tokens: int
    delay: float
    fail_after: int
    sleep: float


class RecordedGraphs:
    """The graphs.

    Attributes:
        release: Ends current naps, and naps that begin while it is set.
    """

    def __init__(self) -> None:
        self.release = anyio.Event()
        child = _line(child_agent=_speak)
        self._graphs: dict[str, Graph] = {
            "agent": _line(agent=_speak),
            "instant": _line(one=_one),
            "slow": _line(nap=self._nap, after=_after),
            "boom": _line(one=_one, bad=_boom),
            "hitl": _line(one=_one, ask=_ask, after=_after),
            "parent": _line(one=_one, child=child),
        }

    @property
    def sources(self) -> dict[str, GraphSource]:
        """The graphs as factories for the runtime."""
        return {name: _source(graph) for name, graph in self._graphs.items()}

    async def _nap(self, state: State, writer: StreamWriter) -> State:
        writer({"phase": "nap-start"})
        if state.get("sleep", 0.0) >= LONG_S:
            await self.release.wait()
        writer({"phase": "nap-end"})
        return {"n": state.get("n", 0) + 1}


def _line(**nodes: Any) -> Graph:  # noqa: ANN401 - nodes are functions of many forms, or graphs
    builder = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile()


def _source(graph: Graph) -> GraphSource:
    async def source(_config: RunnableConfig) -> Graph:
        return graph

    return source


async def _one(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


async def _after(state: State) -> State:
    return {"n": state.get("n", 0) + 100}


async def _boom(state: State) -> State:
    raise ValueError("boom: graph node failed")


async def _ask(state: State) -> State:
    return {"answer": interrupt({"question": "approve?", "n": state.get("n", 0)})}


async def _speak(state: State) -> State:
    model = TokenModel(
        tokens=state.get("tokens", 3),
        fail_after=state.get("fail_after"),
        delay_s=state.get("delay", 0.0) * PACE,
    )
    return {"messages": [await model.ainvoke(state.get("messages", []))]}
