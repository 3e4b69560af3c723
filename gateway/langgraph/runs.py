"""Runs: start, stream, wait, join and cancel; on a thread, or stateless."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.dependencies import ServicesDep
from gateway.langgraph.assistant_lookup import resolve_assistant
from gateway.langgraph.request_models import MAX_OFFSET, RunCreate
from gateway.langgraph.response_models import RunResponse
from gateway.langgraph.responses import (
    ended_response,
    location_headers,
    run_response,
    stream_response,
    wait_response,
)
from gateway.langgraph.route import (
    LOCATION_HEADERS,
    SelectDep,
    WireRoute,
    json_response,
    parse_id,
    select_fields,
)
from gateway.langgraph.run_requests import build_run_request
from gateway.runtime.event_log import EventLog
from gateway.runtime.lifecycle import is_final
from gateway.runtime.local_run import LocalRun
from gateway.runtime.request import GraphRunRequest
from gateway.runtime.run_view import run_view
from gateway.runtime.serialization import dumps
from gateway.services import Services
from gateway.sse import DelayedJsonResponse, EventStreamResponse, parse_last_event_id
from store.errors import RowNotFound, StoreUnavailable
from store.runs import Run, RunStatus

ON_NODE_LOSS, INTERRUPT = "X-Parley-On-Node-Loss", "interrupt"
"""Header and value of clients that repeat lost runs themselves. Their runs end with the process that executes them."""

router = APIRouter(tags=["runs"], route_class=WireRoute)

CancelAction = Annotated[
    Literal["interrupt", "rollback"],
    Query(description="Keep the run's steps, or restore the thread's state from before the run"),
]

CancelOnDisconnect = Annotated[bool, Query(description="Cancel the run if the client disconnects")]


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The options of a client that joins the stream of a run."""

    stream_mode: Annotated[
        list[str], Query(default_factory=list, description="Only events of these modes")
    ]
    last_event_id: Annotated[str | None, Header(description="Continue after this event")] = None
    cancel_on_disconnect: CancelOnDisconnect = False

    def respond(self, request: Request, services: Services, live: LocalRun) -> Response:
        """Stream the events of a run."""
        return stream_response(
            request,
            services,
            live,
            after=parse_last_event_id(self.last_event_id),
            stream_modes=self.stream_mode,
            cancel_on_disconnect=self.cancel_on_disconnect,
        )


JoinOptionsDep = Annotated[JoinOptions, Depends()]


@router.post("/threads/{thread_id}/runs", response_model=RunResponse)
async def create_run(
    request: Request, thread_id: str, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a run in the background."""
    return run_response(request, await _start(request, services, thread_id, body))


@router.post("/runs", response_model=RunResponse)
async def create_stateless_run(
    request: Request, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a stateless run in the background."""
    return run_response(request, await _start(request, services, None, body))


@router.post(
    "/threads/{thread_id}/runs/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses=LOCATION_HEADERS,
)
async def stream_run(
    request: Request, thread_id: str, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a run and stream its events."""
    live = await _start(request, services, thread_id, body)
    return stream_response(
        request, services, live, cancel_on_disconnect=body.on_disconnect == "cancel"
    )


@router.post(
    "/runs/stream", status_code=200, response_class=EventStreamResponse, responses=LOCATION_HEADERS
)
async def stream_stateless_run(
    request: Request, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a stateless run and stream its events."""
    live = await _start(request, services, None, body)
    return stream_response(
        request, services, live, cancel_on_disconnect=body.on_disconnect == "cancel"
    )


@router.post("/threads/{thread_id}/runs/wait", response_model=None, responses=LOCATION_HEADERS)
async def wait_for_run(
    request: Request, thread_id: str, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a run and return the thread's values when it ends."""
    live = await _start(request, services, thread_id, body)
    return wait_response(
        request, services, live, cancel_on_disconnect=body.on_disconnect == "cancel"
    )


@router.post("/runs/wait", response_model=None, responses=LOCATION_HEADERS)
async def wait_for_stateless_run(
    request: Request, body: RunCreate, services: ServicesDep
) -> Response:
    """Start a stateless run and return its values when it ends."""
    live = await _start(request, services, None, body)
    return wait_response(
        request, services, live, cancel_on_disconnect=body.on_disconnect == "cancel"
    )


@router.get("/threads/{thread_id}/runs", response_model=list[RunResponse])
async def list_runs(
    thread_id: str,
    services: ServicesDep,
    select: SelectDep,
    *,
    limit: Annotated[int, Query(ge=0, le=1000)] = 10,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    status: RunStatus | None = None,
) -> Response:
    """List a thread's runs, newest first."""
    thread = await services.runs.threads.get(parse_id(thread_id, "thread"))
    rows = await services.runs.rows.list_by_thread(
        thread.thread_id, status=status, limit=limit, offset=offset
    )
    return json_response([select_fields(run_view(row), select) for row in rows])


@router.get("/threads/{thread_id}/runs/{run_id}", response_model=RunResponse)
async def get_run(thread_id: str, run_id: str, services: ServicesDep) -> Response:
    """Return a run."""
    return json_response(run_view(await _get_run(services, thread_id, run_id)))


@router.delete("/threads/{thread_id}/runs/{run_id}", status_code=204)
async def delete_run(thread_id: str, run_id: str, services: ServicesDep) -> None:
    """Delete a run that has ended."""
    ids = parse_id(thread_id, "thread"), parse_id(run_id, "run")
    if not is_final((await services.runs.get(*ids)).status):
        raise HTTPException(409, "The run has not ended: cancel it first.")
    if not await services.runs.rows.delete(*ids):
        raise RowNotFound("Run not found")


@router.post(
    "/threads/{thread_id}/runs/{run_id}/cancel",
    response_model=None,
    responses={**LOCATION_HEADERS, 202: {"description": "Accepted; no body"}},
)
async def cancel_run(
    request: Request,
    thread_id: str,
    run_id: str,
    services: ServicesDep,
    *,
    action: CancelAction = "interrupt",
    wait: Annotated[bool, Query(description="Respond only when the run has stopped")] = False,
) -> Response:
    """Cancel a run."""
    ids = parse_id(thread_id, "thread"), parse_id(run_id, "run")
    live = await services.cluster_runs.find(ids[1], thread_id=ids[0]) if wait else None
    await services.cluster_runs.cancel(*ids, action)
    if live is None:
        return Response(status_code=202)
    return DelayedJsonResponse(
        live.finished,
        lambda: b"{}",
        headers=location_headers(request, live, "join"),
        heartbeat_s=services.heartbeat_s,
    )


@router.get(
    "/threads/{thread_id}/runs/{run_id}/join", response_model=None, responses=LOCATION_HEADERS
)
async def join_run(
    request: Request,
    thread_id: str,
    run_id: str,
    services: ServicesDep,
    *,
    cancel_on_disconnect: CancelOnDisconnect = False,
) -> Response:
    """Wait until a run ends and return the thread's values."""
    run, live = await _find_run(services, thread_id, run_id)
    if live is not None:
        return wait_response(request, services, live, cancel_on_disconnect=cancel_on_disconnect)
    if run.status == "error" and run.error:
        return json_response({"__error__": run.error})
    values = await services.states.values(await services.runs.threads.get(run.thread_id))
    return json_response({} if values is None else values)


@router.get("/runs/{run_id}/join", response_model=None, responses=LOCATION_HEADERS)
async def join_stateless_run(
    request: Request,
    run_id: str,
    services: ServicesDep,
    *,
    cancel_on_disconnect: CancelOnDisconnect = False,
) -> Response:
    """Wait until a stateless run ends."""
    live = await _get_stateless_run(services, run_id)
    return wait_response(request, services, live, cancel_on_disconnect=cancel_on_disconnect)


@router.get(
    "/threads/{thread_id}/runs/{run_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses=LOCATION_HEADERS,
)
async def join_run_stream(
    request: Request, thread_id: str, run_id: str, services: ServicesDep, options: JoinOptionsDep
) -> Response:
    """Stream a run's events: all of them, or those after Last-Event-ID."""
    run, live = await _find_run(services, thread_id, run_id)
    if live is not None:
        return options.respond(request, services, live)
    after = parse_last_event_id(options.last_event_id)
    values = await services.states.values(await services.runs.threads.get(run.thread_id))
    log = _expired_event_log(run, values, after=after)
    return ended_response(request, services, log, after)


@router.get(
    "/runs/{run_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses=LOCATION_HEADERS,
)
async def join_stateless_run_stream(
    request: Request, run_id: str, services: ServicesDep, options: JoinOptionsDep
) -> Response:
    """Stream the events of a stateless run."""
    return options.respond(request, services, await _get_stateless_run(services, run_id))


async def _start(
    request: Request, services: Services, thread_id: str | None, body: RunCreate
) -> LocalRun:
    restartable = request.headers.get(ON_NODE_LOSS) != INTERRUPT
    run = await resolve_run(services, thread_id, body, restartable=restartable)
    return await services.cluster_runs.start(run)


async def resolve_run(
    services: Services, thread_id: str | None, body: RunCreate, *, restartable: bool
) -> GraphRunRequest:
    """Return the run of a request, on a thread or stateless. Raises errors of the table in `gateway/errors.py`."""
    thread_id = None if thread_id is None else parse_id(thread_id, "thread")
    run = await resolve_assistant(services, build_run_request(body, thread_id))
    return run if restartable else replace(run, restartable=False)


async def _get_run(services: Services, thread_id: str, run_id: str) -> Run:
    return await services.runs.get(parse_id(thread_id, "thread"), parse_id(run_id, "run"))


async def _find_run(services: Services, thread_id: str, run_id: str) -> tuple[Run, LocalRun | None]:
    """Return a run, and its events if a node has them. Raises StoreUnavailable if no node has it at the moment."""
    run = await _get_run(services, thread_id, run_id)
    live = await services.cluster_runs.find(run.run_id, thread_id=run.thread_id)
    if live is None and not is_final(run.status):
        raise StoreUnavailable("The run is moving to another node. Try again.")
    return run, live


async def _get_stateless_run(services: Services, run_id: str) -> LocalRun:
    live = await services.cluster_runs.find(parse_id(run_id, "run"))
    if live is None:
        raise RowNotFound("Run not found")
    return live


def _expired_event_log(run: Run, values: object, *, after: int) -> EventLog:
    """Return substitute events for a run whose events are no longer kept: a gap, the state and the end."""
    log = EventLog(first=after + 1)
    log.append("gap", dumps({"code": "stream_replay_gap", "after": after}))
    if values is not None:
        log.append("values", dumps(values))
    log.append("end", dumps({"run_id": run.run_id, "status": run.status}))
    log.close()
    return log
