"""The answers about runs: at once, at the end, or as a stream of events."""

import json
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from gateway.langgraph.route import ApiError, json_response
from gateway.langgraph.services import services_of
from gateway.runtime.events import CONTROL_EVENTS, RunEvent
from gateway.runtime.live_run import LiveRun
from gateway.runtime.stream_modes import STREAM_MODES
from gateway.runtime.wire import run_to_wire
from gateway.sse import DelayedJsonResponse, EventStreamResponse, parse_last_event_id, stream_events


def run_response(request: Request, live: LiveRun) -> Response:
    """Answer with a run that was started."""
    headers = {"Content-Location": location_headers(request, live, "join")["Content-Location"]}
    return json_response(run_to_wire(live.row), headers=headers)


def stream_response(request: Request, live: LiveRun) -> Response:
    """Answer with the events of a run that was just started."""
    return EventStreamResponse(
        stream_events(live.log.subscribe()),
        headers=location_headers(request, live, "stream"),
        heartbeat_s=services_of(request).heartbeat_s,
        gone=_on_disconnect(request, live),
    )


def join_response(request: Request, live: LiveRun) -> Response:
    """Answer with the events of a run: all, or those after Last-Event-ID."""
    query = request.query_params
    if query.get("cancel_on_disconnect", "").lower() in {"1", "true"}:
        request.state.cancel_on_disconnect = True
    return EventStreamResponse(
        stream_events(
            live.log.subscribe(parse_last_event_id(request.headers.get("last-event-id"))),
            _mode_filter(query.getlist("stream_mode")),
        ),
        headers=location_headers(request, live, "stream"),
        heartbeat_s=services_of(request).heartbeat_s,
        gone=_on_disconnect(request, live),
    )


def wait_response(request: Request, live: LiveRun) -> Response:
    """Answer with a run's result, at its end."""
    return DelayedJsonResponse(
        live.finished,
        lambda: live.result,
        headers=location_headers(request, live, "join"),
        heartbeat_s=services_of(request).heartbeat_s,
        gone=_on_disconnect(request, live),
    )


def location_headers(request: Request, live: LiveRun, then: str) -> dict[str, str]:
    """Say where the run is, and where to go on if this answer breaks off.

    Clients put `Location` behind their base URL, which ends with our prefix: it must not be repeated.
    """
    place = f"/runs/{live.run_id}"
    if not live.temporary:
        place = f"/threads/{live.thread_id}{place}"
    return {"Location": f"{place}/{then}", "Content-Location": f"{_api_prefix(request)}{place}"}


def _api_prefix(request: Request) -> str:
    path: str = request.url.path
    return path[: path.index("/threads/" if "/threads/" in path else "/runs")]


def _on_disconnect(request: Request, live: LiveRun) -> Callable[[], None]:
    if getattr(request.state, "cancel_on_disconnect", False):
        return lambda: live.request_cancel("interrupt")
    return lambda: None


def _mode_filter(asked: list[str]) -> Callable[[RunEvent], bool]:
    """Return the filter for `stream_mode`: repeated keys, a JSON list, or one name; none means everything.

    Raises:
        Refused: there is no such mode.
    """
    wanted = parse_names(asked)
    if unknown := [name for name in wanted if name not in STREAM_MODES]:
        raise ApiError(
            422, f"There is no stream mode {unknown[0]!r}; there are {', '.join(STREAM_MODES)}."
        )
    names = {"messages" if name == "messages-tuple" else name for name in wanted}
    if not names:
        return lambda _event: True
    names |= CONTROL_EVENTS
    return lambda event: event.mode in names


def parse_names(given: list[str]) -> list[str]:
    """Return the names in a query's values: repeated keys, JSON lists, or names with commas between.

    Raises:
        Refused: a value looks like a JSON list and is none.
    """
    names: list[str] = []
    for one in given:
        names += _parse_json_list(one) if one.startswith("[") else one.split(",")
    return [name.strip() for name in names if name.strip()]


def _parse_json_list(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        raise ApiError(422, "A list in the query is not valid JSON.") from None
    return [str(name) for name in found]
