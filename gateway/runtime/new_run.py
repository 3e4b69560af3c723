"""From a request to its run, and back from what is stored of it: another process starts the run again. Pure."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import orjson

from agent.thread_queue import QueueTicket
from gateway.runtime.assistants import assistant_id_for_graph
from gateway.runtime.errors import InvalidRequest
from gateway.runtime.live_run import LiveRun
from gateway.runtime.request import GraphRunRequest, new_run_row, parse_messages
from gateway.runtime.serialization import dumps
from gateway.runtime.stream_modes import parse_stream_modes
from store.run_requests import LeftRun

_OTHER_FORM = frozenset({"modes", "kwargs", "restartable"})
_STORED_FIELDS = [field for field in fields(GraphRunRequest) if field.name not in _OTHER_FORM]
"""Of a request; the others are stored in another form, or known."""


def new_live_run(
    request: GraphRunRequest,
    *,
    run_id: str,
    thread_id: str,
    graph_id: str,
    created_at: float,
    temporary: bool,
) -> LiveRun:
    """Return a pending run, without its first event. `created_at`: Unix seconds."""
    row = new_run_row(
        request,
        run_id=run_id,
        thread_id=thread_id,
        graph_id=graph_id,
        assistant_id=request.shown_assistant_id or assistant_id_for_graph(graph_id),
        now=created_at,
    )
    return LiveRun(
        row=row,
        graph_id=graph_id,
        ticket=QueueTicket(thread_id),
        temporary=temporary,
        webhook_url=request.webhook,
        restartable=request.restartable,
    )


def encode_request(request: GraphRunRequest, live: LiveRun) -> str:
    """Return what is stored of a request, JSON. A run with a row has `kwargs` there."""
    stored = {
        **encode_start(request),
        "thread_id": live.thread_id,
        "graph_id": live.graph_id,
        "kwargs": request.kwargs if live.temporary else None,
    }
    return dumps(stored).decode()


def encode_start(request: GraphRunRequest) -> dict[str, Any]:
    """Return a request as JSON has it, for another node that is to start it."""
    return {
        **{field.name: getattr(request, field.name) for field in _STORED_FIELDS},
        "stream_mode": sorted(request.modes.requested),
        "subgraphs": request.modes.subgraphs,
        "kwargs": request.kwargs,
        "restartable": request.restartable,
    }


def decode_start(body: Mapping[str, Any], **changed: Any) -> GraphRunRequest:  # noqa: ANN401 - fields of a request
    """Return what `encode_start` was given, with some fields changed. Raises KeyError, TypeError, ValueError."""
    given = {field.name: body[field.name] for field in _STORED_FIELDS if field.name in body}
    modes = parse_stream_modes(body["stream_mode"], subgraphs=body["subgraphs"])
    others = {"kwargs": body["kwargs"] or {}, "restartable": body.get("restartable", True)}
    return GraphRunRequest(**(given | {"modes": modes} | others | changed))


def decode_left_run(left: LeftRun, *, now: float) -> tuple[GraphRunRequest, LiveRun]:
    """Return the request of a run that is started again, and its next attempt.

    `now`: Unix seconds; what has passed of a delay is over.

    Raises:
        InvalidRequest: What another version stored cannot be read.
    """
    try:
        body: dict[str, Any] = orjson.loads(left.body)
        rest_s = max(0.0, body["after_seconds"] - (now - left.created_at))
        request = decode_start(body, after_seconds=rest_s)
        if left.kwargs:
            request = replace(request, kwargs=orjson.loads(left.kwargs) or request.kwargs)
        live = _next_attempt(left, request, body)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"The stored request cannot be read: {error!r}") from error
    return request, live


def _next_attempt(left: LeftRun, request: GraphRunRequest, body: Mapping[str, Any]) -> LiveRun:
    live = new_live_run(
        request,
        run_id=left.run_id,
        thread_id=body["thread_id"],
        graph_id=body["graph_id"],
        created_at=left.created_at,
        temporary=left.thread_id is None,
    )
    live.attempt, live.crashes = left.attempt, left.crashes
    # JSON may contain other line separators.
    lines = left.messages.rstrip("\n").split("\n") if left.messages else []
    live.messages = parse_messages([orjson.loads(line) for line in lines])
    return live
