"""Responses about runs: the started run, its result at the end, or a stream of its events."""

from collections.abc import AsyncGenerator, Callable, Sequence

from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.route import json_response, parse_names
from gateway.runtime.event_log import EventLog
from gateway.runtime.events import CONTROL_EVENTS
from gateway.runtime.local_run import LocalRun
from gateway.runtime.run_view import run_view
from gateway.runtime.stream_modes import STREAM_MODES
from gateway.services import Services
from gateway.sse import (
    DelayedJsonResponse,
    EventPredicate,
    EventStreamResponse,
    stream_events,
)


def run_response(request: Request, live: LocalRun) -> Response:
    """Return the response for a started run."""
    headers = {"Content-Location": location_headers(request, live, "join")["Content-Location"]}
    return json_response(run_view(live.row), headers=headers)


def stream_response(
    request: Request,
    services: Services,
    live: LocalRun,
    *,
    after: int = 0,
    stream_modes: Sequence[str] = (),
    cancel_on_disconnect: bool = False,
) -> Response:
    """Stream the events of a run.

    Args:
        request: Its path determines the locations in the headers.
        services: The running services.
        live: The run.
        after: The number of the last event that the client has; 0 = all events are sent.
        stream_modes: Only events of these modes; empty = all.
        cancel_on_disconnect: Cancel the run if the client disconnects.
    """
    wanted = _event_filter(request, services, _mode_filter(stream_modes))
    return EventStreamResponse(
        _stream_attempts(live, after, wanted),
        headers=location_headers(request, live, "stream"),
        heartbeat_s=services.heartbeat_s,
        on_disconnect=_on_disconnect(live, cancel=cancel_on_disconnect),
    )


async def _stream_attempts(
    live: LocalRun, after: int, wanted: EventPredicate
) -> AsyncGenerator[bytes]:
    """Yield the frames of a run, and of the attempts that follow if its node is lost."""
    attempt: LocalRun | None = live
    while attempt is not None:
        reader = attempt.log.subscribe(after)
        async for frames in stream_events(reader, wanted):
            yield frames
        after, attempt = reader.position, await attempt.next_attempt()


def ended_response(request: Request, services: Services, log: EventLog, after: int) -> Response:
    """Stream the substitute events of a run whose events are no longer kept."""
    wanted = _event_filter(request, services, lambda _event: True)
    return EventStreamResponse(
        stream_events(log.subscribe(after), wanted), headers={}, heartbeat_s=services.heartbeat_s
    )


def wait_response(
    request: Request, services: Services, live: LocalRun, *, cancel_on_disconnect: bool = False
) -> Response:
    """Return the result of a run when it ends."""
    return DelayedJsonResponse(
        live.finished,
        lambda: live.result,
        headers=location_headers(request, live, "join"),
        heartbeat_s=services.heartbeat_s,
        on_disconnect=_on_disconnect(live, cancel=cancel_on_disconnect),
    )


def location_headers(request: Request, live: LocalRun, action: str) -> dict[str, str]:
    """Return the headers with the run's URL, and with the URL that continues a broken response.

    Clients append `Location` to their base URL, which already ends with the API prefix.
    """
    path = f"/runs/{live.run_id}"
    if not live.temporary:
        path = f"/threads/{live.thread_id}{path}"
    requested: str = request.scope["path"]
    prefix = requested[: requested.index("/threads/" if "/threads/" in requested else "/runs")]
    return {"Location": f"{path}/{action}", "Content-Location": f"{prefix}{path}"}


def _on_disconnect(live: LocalRun, *, cancel: bool) -> Callable[[], None]:
    return (lambda: live.request_cancel("interrupt")) if cancel else (lambda: None)


def _event_filter(request: Request, services: Services, wanted: EventPredicate) -> EventPredicate:
    """Return a filter that also drops the last event, `end`, for clients that would mistake it for a result.

    LangGraph's server sends no such event. Its SDKs are recognized by their User-Agent: the Python SDK sends its name,
    and the JavaScript SDK sends Node's. In a browser the JavaScript SDK sends the browser's User-Agent. There, `end` is
    useful, because it saves the SDK a request for the run's state.
    """
    agent = request.headers.get("user-agent", "")
    is_sdk = agent == "node" or agent.startswith("langgraph-sdk-py/")
    if services.config.gateway.stream_end_event and not is_sdk:
        return wanted
    return lambda event: event.name != "end" and wanted(event)


def _mode_filter(values: Sequence[str]) -> EventPredicate:
    """Return the filter for `stream_mode`. Raises HTTPException (422) for an unknown mode."""
    modes = parse_names(values)
    if unknown := [name for name in modes if name not in STREAM_MODES]:
        raise HTTPException(
            422,
            f"There is no stream mode {unknown[0]!r}; available: {', '.join(STREAM_MODES)}.",
        )
    if not modes:
        return lambda _event: True
    names = {"messages" if name == "messages-tuple" else name for name in modes} | CONTROL_EVENTS
    return lambda event: event.mode in names
