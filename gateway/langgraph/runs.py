"""Runs: started, streamed, waited for, joined, cancelled; on a thread, or without one."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.assistant_lookup import resolve_assistant
from gateway.langgraph.request_models import RUN_STATUSES, RunCreate
from gateway.langgraph.responses import (
    join_response,
    location_headers,
    parse_names,
    run_response,
    stream_response,
    wait_response,
)
from gateway.langgraph.route import (
    ApiError,
    WireRoute,
    json_response,
    parse_id,
    parse_number,
    read_body,
    select_fields,
)
from gateway.langgraph.run_requests import build_run_request
from gateway.langgraph.services import services_of
from gateway.runtime.event_log import EventLog
from gateway.runtime.live_run import LiveRun
from gateway.runtime.serialization import dumps
from gateway.runtime.wire import run_to_wire
from gateway.sse import DelayedJsonResponse, EventStreamResponse, parse_last_event_id, stream_events
from store.errors import RowNotFound
from store.runs import Run

router = APIRouter(tags=["runs"], route_class=WireRoute)


@router.post("/threads/{thread_id}/runs", response_model=None)
async def create_run(request: Request, thread_id: str) -> Response:
    """Start a run in the background."""
    return run_response(request, await _start_run(request, thread_id))


@router.post("/runs", response_model=None)
async def create_stateless_run(request: Request) -> Response:
    """Start a run without a thread in the background."""
    return run_response(request, await _start_run(request, None))


@router.post("/threads/{thread_id}/runs/stream", response_model=None)
async def stream_run(request: Request, thread_id: str) -> Response:
    """Start a run and stream its events."""
    return stream_response(request, await _start_run(request, thread_id))


@router.post("/runs/stream", response_model=None)
async def stream_stateless_run(request: Request) -> Response:
    """Start a run without a thread and stream its events."""
    return stream_response(request, await _start_run(request, None))


@router.post("/threads/{thread_id}/runs/wait", response_model=None)
async def wait_for_run(request: Request, thread_id: str) -> Response:
    """Start a run and return the thread's values at its end."""
    return wait_response(request, await _start_run(request, thread_id))


@router.post("/runs/wait", response_model=None)
async def wait_for_stateless_run(request: Request) -> Response:
    """Start a run without a thread and return its values at the end."""
    return wait_response(request, await _start_run(request, None))


@router.get("/threads/{thread_id}/runs", response_model=None)
async def list_runs(request: Request, thread_id: str) -> Response:
    """List a thread's runs, newest first."""
    services = services_of(request)
    thread = await services.threads.get(parse_id(thread_id, "thread"))
    query = request.query_params
    status = query.get("status") or None
    if status not in {None, *RUN_STATUSES}:
        raise ApiError(422, f"status must be one of {', '.join(RUN_STATUSES)}.")
    select = parse_names(query.getlist("select"))
    rows = await services.runs.rows.list_by_thread(
        thread.thread_id,
        status=status,
        limit=parse_number(query.get("limit"), default=10, most=1000),
        offset=parse_number(query.get("offset"), default=0, most=1_000_000_000),
    )
    return json_response([select_fields(run_to_wire(row), select) for row in rows])


@router.get("/threads/{thread_id}/runs/{run_id}", response_model=None)
async def get_run(request: Request, thread_id: str, run_id: str) -> Response:
    """Return one run."""
    return json_response(run_to_wire(await _get_run(request, thread_id, run_id)))


@router.delete("/threads/{thread_id}/runs/{run_id}", response_model=None)
async def delete_run(request: Request, thread_id: str, run_id: str) -> Response:
    """Delete a run that is over."""
    runs = services_of(request).runs
    ids = parse_id(thread_id, "thread"), parse_id(run_id, "run")
    live = runs.find(*ids)
    if live and not live.is_finished:
        raise ApiError(409, "The run is not over: cancel it first.")
    if not await runs.rows.delete(*ids):
        raise RowNotFound("Run not found")
    return Response(status_code=204)


@router.post("/threads/{thread_id}/runs/{run_id}/cancel", response_model=None)
async def cancel_run(request: Request, thread_id: str, run_id: str) -> Response:
    """Stop a run; with `wait_for_run`, answer when it has stopped."""
    query = request.query_params
    action = query.get("action", "interrupt")
    if action not in {"interrupt", "rollback"}:
        raise ApiError(422, "action must be interrupt or rollback")
    services = services_of(request)
    live = await services.runs.cancel(
        parse_id(thread_id, "thread"),
        parse_id(run_id, "run"),
        "rollback" if action == "rollback" else "interrupt",
    )
    if query.get("wait", "0").lower() not in {"1", "true"}:
        return Response(status_code=202)
    return DelayedJsonResponse(
        live.finished,
        lambda: b"{}",
        headers=location_headers(request, live, "join"),
        heartbeat_s=services.heartbeat_s,
    )


@router.get("/threads/{thread_id}/runs/{run_id}/join", response_model=None)
async def join_run(request: Request, thread_id: str, run_id: str) -> Response:
    """Wait for a run's end and return the thread's values."""
    run = await _get_run(request, thread_id, run_id)
    services = services_of(request)
    live = services.runs.find(run.thread_id, run.run_id)
    if live is not None:
        return wait_response(request, live)
    if run.status == "error" and run.error:
        return json_response({"__error__": run.error})
    if run.status == "interrupted":
        return json_response({})
    return json_response(await services.states.values(run.thread_id) or {})


@router.get("/runs/{run_id}/join", response_model=None)
async def join_stateless_run(request: Request, run_id: str) -> Response:
    """Wait for the end of a run without a thread."""
    return wait_response(request, _get_stateless_run(request, run_id))


@router.get("/threads/{thread_id}/runs/{run_id}/stream", response_model=None)
async def join_run_stream(request: Request, thread_id: str, run_id: str) -> Response:
    """Stream a run's events: all of them, or those after Last-Event-ID."""
    run = await _get_run(request, thread_id, run_id)
    services = services_of(request)
    live = services.runs.find(run.thread_id, run.run_id)
    if live is not None:
        return join_response(request, live)
    values = await services.states.values(run.thread_id)
    after = parse_last_event_id(request.headers.get("last-event-id"))
    log = _expired_event_log(run, values, after=after)
    return EventStreamResponse(
        stream_events(log.subscribe(after)), headers={}, heartbeat_s=services.heartbeat_s
    )


@router.get("/runs/{run_id}/stream", response_model=None)
async def join_stateless_run_stream(request: Request, run_id: str) -> Response:
    """Stream the events of a run without a thread."""
    return join_response(request, _get_stateless_run(request, run_id))


async def _start_run(request: Request, thread_id: str | None) -> LiveRun:
    wanted = None if thread_id is None else parse_id(thread_id, "thread")
    body = await read_body(request, RunCreate)
    services = services_of(request)
    live = await services.runs.start(
        await resolve_assistant(services, build_run_request(body, wanted))
    )
    if body.on_disconnect == "cancel":
        request.state.cancel_on_disconnect = True
    return live


async def _get_run(request: Request, thread_id: str, run_id: str) -> Run:
    ids = parse_id(thread_id, "thread"), parse_id(run_id, "run")
    return await services_of(request).runs.get(*ids)


def _get_stateless_run(request: Request, run_id: str) -> LiveRun:
    live = services_of(request).runs.find(None, parse_id(run_id, "run"))
    if live is None:
        raise RowNotFound("Run not found")
    return live


def _expired_event_log(run: Run, values: object, *, after: int) -> EventLog:
    """Return what can still be said of a run whose events are gone: that they are, the state, the end."""
    log = EventLog(first=after + 1)
    log.append("gap", dumps({"code": "stream_replay_gap", "after": after}))
    if values is not None:
        log.append("values", dumps(values))
    log.append("end", dumps({"run_id": run.run_id, "status": run.status}))
    log.close()
    return log
