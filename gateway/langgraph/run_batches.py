"""Several runs at once: started, cancelled."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.assistant_lookup import resolve_assistant
from gateway.langgraph.request_models import CancelMany, RunCreate
from gateway.langgraph.route import ApiError, WireRoute, json_response, parse_id, read_body
from gateway.langgraph.run_requests import build_run_request
from gateway.langgraph.services import LangGraphServices, services_of
from gateway.runtime.live_run import LiveRun
from gateway.runtime.wire import run_to_wire
from store.errors import RowNotFound

router = APIRouter(tags=["runs"], route_class=WireRoute)

MAX_BATCH_SIZE = 100


class RunBatch(RootModel[Annotated[list[RunCreate], Field(max_length=MAX_BATCH_SIZE)]]):
    """POST /runs/batch."""


@router.post("/runs/batch", response_model=None)
async def create(request: Request) -> Response:
    """Start runs without threads in the background: all of them, or none when one cannot be started."""
    batch = await read_body(request, RunBatch)
    services = services_of(request)
    wanted = [await resolve_assistant(services, build_run_request(one, None)) for one in batch.root]
    for one in wanted:
        await services.runs.validate(one)
    lives = [await services.runs.start(one) for one in wanted]
    return json_response([run_to_wire(live.row) for live in lives])


@router.post("/runs/cancel", response_model=None)
async def cancel(request: Request) -> Response:
    """Stop runs of one thread, or all of a status, on whatever threads."""
    action = request.query_params.get("action", "interrupt")
    if action not in {"interrupt", "rollback"}:
        raise ApiError(422, "action must be interrupt or rollback")
    runs = _select_runs(services_of(request), await read_body(request, CancelMany))
    if not runs:
        raise RowNotFound("No runs found to cancel.")
    for live in runs:
        live.request_cancel("rollback" if action == "rollback" else "interrupt")
    return Response(status_code=204)


def _select_runs(services: LangGraphServices, body: CancelMany) -> list[LiveRun]:
    if body.status is not None:
        if body.thread_id or body.run_ids:
            raise ApiError(422, "Give either status, or thread_id and run_ids.")
        return [run for run in services.runs.active if body.status in {"all", run.row.status}]
    if not (body.thread_id and body.run_ids):
        raise ApiError(422, "Give thread_id and run_ids, or status.")
    wanted = {parse_id(one, "run") for one in body.run_ids}
    thread = services.runs.active_on_thread(parse_id(body.thread_id, "thread"))
    return [run for run in thread if run.run_id in wanted and not run.is_finished]
