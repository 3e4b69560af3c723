"""`/ok` and `/info`, which clients request to check the server before they use it."""

from importlib.metadata import version
from typing import Any

from anyio import to_thread
from fastapi import APIRouter

from gateway.langgraph.route import WireRoute

router = APIRouter(tags=["meta"], route_class=WireRoute)

LANGGRAPH_SERVER_VERSION = "0.16.7"
"""The LangGraph Server whose behavior this API follows (docs/reference/langgraph-api.md)."""


@router.get("/ok")
async def ok() -> dict[str, Any]:
    """Report that the server is up."""
    return {"ok": True}


@router.get("/info")
async def info() -> dict[str, Any]:
    """Return the LangGraph Server version that this API follows, and its features."""
    return {
        "version": LANGGRAPH_SERVER_VERSION,
        "langgraph_py_version": await to_thread.run_sync(version, "langgraph"),
        "flags": {"assistants": True, "crons": True, "langsmith": False},
        "host": {"kind": "parley"},
    }
