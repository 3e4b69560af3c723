"""The LangGraph-compatible API: what langgraph-sdk, agent-chat-ui and LangGraph Studio speak."""

from fastapi import APIRouter

from gateway.langgraph import assistants, runs, threads
from gateway.langgraph.services import LangGraphServices

__all__ = ["LangGraphServices", "langgraph_routers"]


def langgraph_routers() -> list[APIRouter]:
    """Return the routers; their handlers find a `LangGraphServices` at `app.state.langgraph`."""
    return [assistants.router, threads.router, runs.router]
