"""Scheduled runs: there are none; every route of theirs says so."""

from fastapi import APIRouter
from starlette.responses import Response

from gateway.langgraph.route import WireRoute, error_json

router = APIRouter(tags=["crons"], route_class=WireRoute)

NOT_SUPPORTED = (
    "This server has no scheduled runs (crons). Let a scheduler of your own start runs: "
    "POST /threads/{thread_id}/runs."
)


@router.post("/runs/crons", response_model=None)
async def create() -> Response:
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)


@router.post("/threads/{thread_id}/runs/crons", response_model=None)
async def create_for_thread(thread_id: str) -> Response:  # noqa: ARG001 - a part of the path
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)


@router.post("/runs/crons/search", response_model=None)
async def search() -> Response:
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)


@router.post("/runs/crons/count", response_model=None)
async def count() -> Response:
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)


@router.patch("/runs/crons/{cron_id}", response_model=None)
async def update(cron_id: str) -> Response:  # noqa: ARG001 - a part of the path
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)


@router.delete("/runs/crons/{cron_id}", response_model=None)
async def delete(cron_id: str) -> Response:  # noqa: ARG001 - a part of the path
    """Scheduled runs are not offered: 501."""
    return error_json(501, NOT_SUPPORTED)
