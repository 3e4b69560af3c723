"""GET /openapi.json, and a hint for LangGraph clients that use the server's root as the API's address."""

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from starlette.responses import JSONResponse

from gateway.auth import OPENAPI_PATH
from gateway.langgraph import langgraph_routers

UNDER_API = "The LangGraph API is under /api: add it to the client's URL."

router = APIRouter(include_in_schema=False)


@router.get(OPENAPI_PATH)
async def get_openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document. Building it takes about a second, once."""
    return JSONResponse(await anyio.to_thread.run_sync(request.app.openapi))


def langgraph_hints() -> APIRouter:
    """Return routes that answer LangGraph API requests at the root with 404 and the right address."""
    hints = APIRouter(include_in_schema=False)
    paths = [route.path for one in langgraph_routers() for route in one.routes]  # type: ignore[attr-defined]  # all have one
    for name in sorted({path.split("/")[1] for path in paths}):
        for path in (f"/{name}", f"/{name}/{{rest:path}}"):
            hints.api_route(path, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])(_under_api)
    return hints


async def _under_api() -> None:
    raise HTTPException(404, UNDER_API)
