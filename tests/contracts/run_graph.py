"""The graph of the contract of runs: it answers, waits or asks, as the last message says. Imports nothing of ours."""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

WAIT_S = 120.0
"""How long "wait" takes, unless the run is cancelled."""


async def answer(state: MessagesState) -> dict[str, Any]:
    """Answer the last message of a person."""
    said = str(state["messages"][-1].content)
    if said == "wait":
        await asyncio.sleep(WAIT_S)
    if said == "fail":
        raise ValueError("as you wished")
    if said == "ask":
        said = str(interrupt("Red or blue?"))
    return {"messages": [AIMessage(f"You said: {said}")]}


def make_graph() -> CompiledStateGraph[MessagesState]:
    """Return the graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile()
