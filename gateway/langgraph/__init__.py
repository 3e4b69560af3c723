"""The LangGraph-compatible API: what langgraph-sdk, agent-chat-ui and LangGraph Studio speak."""

from fastapi import APIRouter

from gateway.langgraph import (
    assistants,
    crons,
    meta,
    protocol_stream,
    protocol_websocket,
    run_batches,
    runs,
    store_items,
    thread_stream,
    threads,
)
from gateway.langgraph.services import LangGraphServices

__all__ = ["LangGraphServices", "langgraph_routers"]


def langgraph_routers() -> list[APIRouter]:
    """Return the routers; their handlers find a `LangGraphServices` at `app.state.langgraph`."""
    modules = (
        meta,
        assistants,
        threads,
        thread_stream,
        protocol_stream,
        protocol_websocket,
        run_batches,
        crons,
        runs,
        store_items,
    )
    return [module.router for module in modules]
