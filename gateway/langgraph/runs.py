"""Runs: started, streamed, waited for, joined, cancelled; on a thread, or without one."""

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from agent.runtime.errors import InvalidRequest
from agent.runtime.events import CONTROL, RunEvent
from agent.runtime.live import LiveRun
from agent.runtime.modes import parse
from agent.runtime.request import RunRequest
from agent.runtime.serialise import dumps
from agent.runtime.shown import run_fields
from agent.runtime.stream import EventLog
from gateway.langgraph.agents import as_agent
from gateway.langgraph.route import Refused, WireRoute, answer, checked_id, read_body
from gateway.langgraph.services import services_of
from gateway.langgraph.wire import RunCreate
from gateway.sse import EventStream, LateAnswer, last_event_id
from store.errors import NotFound
from store.runs import Run

router = APIRouter(tags=["runs"], route_class=WireRoute)


@router.post("/threads/{thread_id}/runs", response_model=None)
async def create(request: Request, thread_id: str) -> Response:
    """Start a run in the background."""
    return _created(request, await _begin(request, thread_id))


@router.post("/runs", response_model=None)
async def create_stateless(request: Request) -> Response:
    """Start a run without a thread in the background."""
    return _created(request, await _begin(request, None))


@router.post("/threads/{thread_id}/runs/stream", response_model=None)
async def stream(request: Request, thread_id: str) -> Response:
    """Start a run and stream its events."""
    return _streamed(request, await _begin(request, thread_id))


@router.post("/runs/stream", response_model=None)
async def stream_stateless(request: Request) -> Response:
    """Start a run without a thread and stream its events."""
    return _streamed(request, await _begin(request, None))


@router.post("/threads/{thread_id}/runs/wait", response_model=None)
async def wait(request: Request, thread_id: str) -> Response:
    """Start a run and return the thread's values at its end."""
    return _awaited(request, await _begin(request, thread_id))


@router.post("/runs/wait", response_model=None)
async def wait_stateless(request: Request) -> Response:
    """Start a run without a thread and return its values at the end."""
    return _awaited(request, await _begin(request, None))


@router.get("/threads/{thread_id}/runs", response_model=None)
async def listing(request: Request, thread_id: str) -> Response:
    """List a thread's runs, newest first."""
    services = services_of(request)
    thread = await services.threads.get(checked_id(thread_id, "thread"))
    query = request.query_params
    rows = await services.runs.rows.listing(
        thread.thread_id,
        status=query.get("status") or None,
        limit=_number(query.get("limit"), default=10, most=1000),
        offset=_number(query.get("offset"), default=0, most=1_000_000_000),
    )
    return answer([run_fields(row) for row in rows])


@router.get("/threads/{thread_id}/runs/{run_id}", response_model=None)
async def get(request: Request, thread_id: str, run_id: str) -> Response:
    """Return one run."""
    return answer(run_fields(await _run(request, thread_id, run_id)))


@router.delete("/threads/{thread_id}/runs/{run_id}", response_model=None)
async def delete(request: Request, thread_id: str, run_id: str) -> Response:
    """Delete a run that is over."""
    runs = services_of(request).runs
    ids = checked_id(thread_id, "thread"), checked_id(run_id, "run")
    live = runs.find(*ids)
    if live and not live.over:
        raise Refused(409, "The run is not over: cancel it first.")
    if not await runs.rows.delete(*ids):
        raise NotFound("Run not found")
    return Response(status_code=204)


@router.post("/threads/{thread_id}/runs/{run_id}/cancel", response_model=None)
async def cancel(request: Request, thread_id: str, run_id: str) -> Response:
    """Stop a run; with `wait`, answer when it has stopped."""
    query = request.query_params
    action = query.get("action", "interrupt")
    if action not in {"interrupt", "rollback"}:
        raise Refused(422, "action must be interrupt or rollback")
    services = services_of(request)
    live = await services.runs.cancel(
        checked_id(thread_id, "thread"),
        checked_id(run_id, "run"),
        "rollback" if action == "rollback" else "interrupt",
    )
    if query.get("wait", "0").lower() not in {"1", "true"}:
        return Response(status_code=202)
    return LateAnswer(
        live.done,
        lambda: b"{}",
        headers=_headers(request, live, "join"),
        heartbeat_s=services.heartbeat_s,
    )


@router.get("/threads/{thread_id}/runs/{run_id}/join", response_model=None)
async def join(request: Request, thread_id: str, run_id: str) -> Response:
    """Wait for a run's end and return the thread's values."""
    run = await _run(request, thread_id, run_id)
    services = services_of(request)
    live = services.runs.find(run.thread_id, run.run_id)
    if live is not None:
        return _awaited(request, live)
    if run.status == "error" and run.error:
        return answer({"__error__": run.error})
    return answer(await services.states.values(run.thread_id) or {})


@router.get("/runs/{run_id}/join", response_model=None)
async def join_stateless(request: Request, run_id: str) -> Response:
    """Wait for the end of a run without a thread."""
    return _awaited(request, _stateless(request, run_id))


@router.get("/threads/{thread_id}/runs/{run_id}/stream", response_model=None)
async def join_stream(request: Request, thread_id: str, run_id: str) -> Response:
    """Stream a run's events: all of them, or those after Last-Event-ID."""
    run = await _run(request, thread_id, run_id)
    services = services_of(request)
    live = services.runs.find(run.thread_id, run.run_id)
    if live is not None:
        return _joined(request, live)
    values = await services.states.values(run.thread_id)
    after = last_event_id(request.headers.get("last-event-id"))
    log = _epilogue(run, values, after=after)
    return EventStream(log.subscribe(after), headers={}, heartbeat_s=services.heartbeat_s)


@router.get("/runs/{run_id}/stream", response_model=None)
async def join_stream_stateless(request: Request, run_id: str) -> Response:
    """Stream the events of a run without a thread."""
    return _joined(request, _stateless(request, run_id))


async def _begin(request: Request, thread_id: str | None) -> LiveRun:
    wanted = None if thread_id is None else checked_id(thread_id, "thread")
    body = await read_body(request, RunCreate)
    services = services_of(request)
    live = await services.runs.start(await as_agent(services, run_request(body, wanted)))
    if body.on_disconnect == "cancel":
        request.state.cancel_on_disconnect = True
    return live


def run_request(body: RunCreate, thread_id: str | None) -> RunRequest:
    """Return what the runtime is asked for. Raises InvalidRequest for what is understood but not offered."""
    if body.webhook or body.after_seconds:
        raise InvalidRequest("webhook and after_seconds are not supported.", malformed=True)
    checkpoint = dict(body.checkpoint or {})
    if body.checkpoint_id:
        checkpoint["checkpoint_id"] = body.checkpoint_id
    durability = body.durability
    if durability is None and body.checkpoint_during is False:
        durability = "exit"
    subgraphs = bool(body.stream_subgraphs)
    return RunRequest(
        thread_id=thread_id,
        assistant_id=body.assistant_id,
        modes=parse(body.stream_mode, subgraphs=subgraphs),
        input=body.input,
        command=body.command.model_dump() if body.command else None,
        config=body.config or {},
        context=body.context or {},
        metadata=body.metadata or {},
        checkpoint=checkpoint,
        interrupt_before=body.interrupt_before,
        interrupt_after=body.interrupt_after,
        multitask=body.multitask_strategy or "enqueue",
        durability=durability,
        create_thread=body.if_not_exists == "create",
        keep_thread=body.on_completion == "keep",
        kwargs=body.model_dump(
            include={
                "input",
                "command",
                "config",
                "context",
                "stream_mode",
                "interrupt_before",
                "interrupt_after",
                "durability",
            }
        ),
    )


def _created(request: Request, live: LiveRun) -> Response:
    headers = {"Content-Location": _headers(request, live, "join")["Content-Location"]}
    return answer(run_fields(live.row), headers=headers)


def _streamed(request: Request, live: LiveRun) -> Response:
    return EventStream(
        live.log.subscribe(),
        headers=_headers(request, live, "stream"),
        heartbeat_s=services_of(request).heartbeat_s,
        gone=_gone(request, live),
    )


def _joined(request: Request, live: LiveRun) -> Response:
    query = request.query_params
    if query.get("cancel_on_disconnect", "").lower() in {"1", "true"}:
        request.state.cancel_on_disconnect = True
    return EventStream(
        live.log.subscribe(last_event_id(request.headers.get("last-event-id"))),
        headers=_headers(request, live, "stream"),
        heartbeat_s=services_of(request).heartbeat_s,
        wanted=_wanted(query.getlist("stream_mode")),
        gone=_gone(request, live),
    )


def _awaited(request: Request, live: LiveRun) -> Response:
    return LateAnswer(
        live.done,
        lambda: live.result,
        headers=_headers(request, live, "join"),
        heartbeat_s=services_of(request).heartbeat_s,
        gone=_gone(request, live),
    )


def _headers(request: Request, live: LiveRun, then: str) -> dict[str, str]:
    """Say where the run is, and where to go on if this answer breaks off.

    Clients put `Location` behind their base URL, which ends with our prefix: it must not be repeated.
    """
    place = f"/runs/{live.run_id}"
    if not live.temporary:
        place = f"/threads/{live.thread_id}{place}"
    return {"Location": f"{place}/{then}", "Content-Location": f"{_prefix(request)}{place}"}


def _prefix(request: Request) -> str:
    path: str = request.url.path
    return path[: path.index("/threads/" if "/threads/" in path else "/runs")]


def _gone(request: Request, live: LiveRun) -> Callable[[], None]:
    if getattr(request.state, "cancel_on_disconnect", False):
        return lambda: live.ask_to_stop("interrupt")
    return lambda: None


def _wanted(asked: list[str]) -> Callable[[RunEvent], bool]:
    """Return the filter for `stream_mode`: repeated keys, a JSON list, or one name; none means everything."""
    names: set[str] = set()
    for one in asked:
        listed = _json_list(one) if one.startswith("[") else [one]
        names.update(
            "messages" if name == "messages-tuple" else str(name) for name in listed if name
        )
    if not names:
        return lambda _event: True
    names |= CONTROL
    return lambda event: event.mode in names


def _json_list(text: str) -> list[Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise Refused(422, "stream_mode is not a JSON list") from None
    return found if isinstance(found, list) else [found]


async def _run(request: Request, thread_id: str, run_id: str) -> Run:
    ids = checked_id(thread_id, "thread"), checked_id(run_id, "run")
    return await services_of(request).runs.get(*ids)


def _stateless(request: Request, run_id: str) -> LiveRun:
    live = services_of(request).runs.find(None, checked_id(run_id, "run"))
    if live is None:
        raise NotFound("Run not found")
    return live


def _epilogue(run: Run, values: object, *, after: int) -> EventLog:
    """Return what can still be said of a run whose events are gone: that they are, the state, the end."""
    log = EventLog(first=after + 1)
    log.append("gap", dumps({"code": "stream_replay_gap", "after": after}))
    if values is not None:
        log.append("values", dumps(values))
    log.append("end", dumps({"run_id": run.run_id, "status": run.status}))
    log.close()
    return log


def _number(text: str | None, *, default: int, most: int) -> int:
    try:
        return max(0, min(int(text or default), most))
    except ValueError:
        raise Refused(422, "limit and offset must be numbers") from None
