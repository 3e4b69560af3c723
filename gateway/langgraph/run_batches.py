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
from gateway.runtime.run_view import run_view

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
    started = [run_view((await services.runs.start(request)).row) for request in requests]
    return json_response(started)


@router.post("/runs/cancel", status_code=204)
async def cancel_runs(
    body: CancelMany, services: ServicesDep, action: CancelAction = "interrupt"
) -> None:
    """Cancel runs of one thread, or all runs with a status."""
    thread_id, run_ids = "", list[str]()
    if body.status is not None:
        if body.thread_id or body.run_ids:
            raise HTTPException(422, "Set either status, or thread_id and run_ids.")
    elif not (body.thread_id and body.run_ids):
        raise HTTPException(422, "Set thread_id and run_ids, or status.")
    else:
        run_ids = [parse_id(run_id, "run") for run_id in body.run_ids]
        thread_id = parse_id(body.thread_id, "thread")
    await services.cluster_runs.cancel_many(
        status=body.status, thread_id=thread_id, run_ids=run_ids, action=action
    )
