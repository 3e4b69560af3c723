"""The LangGraph-compatible API, for langgraph-sdk, agent-chat-ui and LangGraph Studio."""

from fastapi import APIRouter

from gateway.langgraph import (
    assistants,
    crons,
    protocol_stream,
    protocol_websocket,
    run_batches,
    runs,
    server_info,
    store_items,
    thread_stream,
    threads,
)

_MODULES = (
    runs,
    threads,
    server_info,
    assistants,
    thread_stream,
    protocol_stream,
    protocol_websocket,
    run_batches,
    crons,
    store_items,
)
"""The busiest come first: FastAPI tries routes in this order, 1,000 function calls for a thread and its run."""


def langgraph_routers() -> list[APIRouter]:
    """Return the routers for an application with `app.state.services`."""
    return [module.router for module in _MODULES]
