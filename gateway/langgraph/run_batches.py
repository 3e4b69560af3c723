"""Several runs at once: start a batch, cancel many."""

from typing import Annotated

from fastapi import APIRouter, HTTPException
from pydantic import Field, RootModel
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph.assistant_lookup import resolve_assistant
from gateway.langgraph.request_models import CancelMany, RunCreate
from gateway.langgraph.response_models import RunResponse
from gateway.langgraph.route import WireRoute, json_response, parse_id
from gateway.langgraph.run_requests import build_run_request
from gateway.langgraph.runs import CancelAction
from gateway.runtime.live_run import LiveRun
from gateway.runtime.wire import run_to_wire
from gateway.services import Services
from store.errors import RowNotFound

router = APIRouter(tags=["runs"], route_class=WireRoute)

MAX_BATCH_SIZE = 100


class RunBatch(RootModel[Annotated[list[RunCreate], Field(max_length=MAX_BATCH_SIZE)]]):
    """POST /runs/batch."""


@router.post("/runs/batch", response_model=list[RunResponse])
async def create_batch(batch: RunBatch, services: ServicesDep) -> Response:
    """Start stateless runs in the background: all of them, or none if one is invalid."""
    requests = [
        await resolve_assistant(services, build_run_request(body, None)) for body in batch.root
    ]
    for request in requests:
        await services.runs.validate(request)
    started = [run_to_wire((await services.runs.start(request)).row) for request in requests]
    return json_response(started)


@router.post("/runs/cancel", status_code=204)
async def cancel_runs(
    body: CancelMany, services: ServicesDep, action: CancelAction = "interrupt"
) -> None:
    """Cancel runs of one thread, or all runs with a status."""
    runs = _select_runs(services, body)
    if not runs:
        raise RowNotFound("No runs found to cancel.")
    await services.runs.cancel_all(runs, action)


def _select_runs(services: Services, body: CancelMany) -> list[LiveRun]:
    if body.status is not None:
        if body.thread_id or body.run_ids:
            raise HTTPException(422, "Set either status, or thread_id and run_ids.")
        return [run for run in services.runs.active if body.status in {"all", run.row.status}]
    if not (body.thread_id and body.run_ids):
        raise HTTPException(422, "Set thread_id and run_ids, or status.")
    ids = {parse_id(run_id, "run") for run_id in body.run_ids}
    on_thread = services.runs.active_on_thread(parse_id(body.thread_id, "thread"))
    return [run for run in on_thread if run.run_id in ids and not run.is_finished]
