"""The graph of the run contract: it answers, waits or asks, as the last message requests.

It imports nothing of Parley.
"""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

WAIT_S = 120.0
"""How long "wait" takes unless the run is canceled, seconds."""


async def answer(state: MessagesState) -> dict[str, Any]:
    """Answer a person's last message."""
    said = str(state["messages"][-1].content)
    if said == "wait":
        await asyncio.sleep(WAIT_S)
    if said == "fail":
        raise ValueError("as requested")
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
