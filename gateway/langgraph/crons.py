"""Scheduled runs are not supported: their routes answer 501."""

from typing import NoReturn

from fastapi import APIRouter, HTTPException

from gateway.langgraph.route import WireRoute

router = APIRouter(tags=["crons"], route_class=WireRoute)

NOT_SUPPORTED = (
    "This server does not support scheduled runs (crons). Use your own scheduler to start runs: "
    "POST /threads/{thread_id}/runs."
)


async def not_supported() -> NoReturn:
    """Scheduled runs are not supported: 501."""
    raise HTTPException(501, NOT_SUPPORTED)


for _method, _path in (
    ("POST", "/runs/crons"),
    ("POST", "/threads/{thread_id}/runs/crons"),
    ("POST", "/runs/crons/search"),
    ("POST", "/runs/crons/count"),
    ("PATCH", "/runs/crons/{cron_id}"),
    ("DELETE", "/runs/crons/{cron_id}"),
):
    router.add_api_route(
        _path, not_supported, methods=[_method], status_code=501, response_model=None
    )
