"""The LangGraph-compatible API: what langgraph-sdk, agent-chat-ui and LangGraph Studio speak."""

from fastapi import APIRouter

from gateway.langgraph import (
    assistants,
    batches,
    crons,
    following,
    items,
    meta,
    protocol,
    runs,
    sockets,
    threads,
)
from gateway.langgraph.services import LangGraphServices

__all__ = ["LangGraphServices", "langgraph_routers"]


def langgraph_routers() -> list[APIRouter]:
    """Return the routers; their handlers find a `LangGraphServices` at `app.state.langgraph`."""
    modules = (meta, assistants, threads, following, protocol, sockets, batches, crons, runs, items)
    return [module.router for module in modules]
