"""What this server is: LangGraph's clients look before they talk."""

from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from gateway.langgraph.route import WireRoute, json_response

router = APIRouter(tags=["meta"], route_class=WireRoute)

LANGGRAPH_SERVER_VERSION = "0.16.7"
"""The LangGraph Server whose behaviour is followed (docs/reference/langgraph-api.md)."""


@router.get("/ok", response_model=None)
async def ok() -> Response:
    """Say that requests are served."""
    return json_response({"ok": True})


@router.get("/info", response_model=None)
async def info() -> Response:
    """Say whose wire format this is, and which parts of it there are."""
    return json_response(
        {
            "version": LANGGRAPH_SERVER_VERSION,
            "langgraph_py_version": version("langgraph"),
            "flags": {"assistants": True, "crons": False, "langsmith": False},
            "host": {"kind": "parley"},
        }
    )
