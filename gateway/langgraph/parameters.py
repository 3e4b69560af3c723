"""What the operations of the LangGraph-compatible API take besides bodies, and say in headers: for the description."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.langgraph.request_models import MAX_OFFSET, RUN_STATUSES
from gateway.langgraph.thread_stream import THREAD_STREAM_MODES as FOLLOWED
from gateway.runtime.stream_modes import STREAM_MODES

Json = dict[str, Any]

FLAG: Json = {"type": "boolean", "default": False}
TEXT: Json = {"type": "string"}
NAMES: Json = {"type": "array", "items": TEXT}
ACTION: Json = {"type": "string", "enum": ["interrupt", "rollback"], "default": "interrupt"}


def _number(most: int, default: int) -> Json:
    return {"type": "integer", "minimum": 0, "maximum": most, "default": default}


def _modes(known: tuple[str, ...]) -> Json:
    return {"type": "array", "items": {"type": "string", "enum": list(known)}}


def _query(name: str, schema: Json, told: str, *, required: bool = False) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "schema": schema,
        "description": told,
    }


def _header(name: str, told: str) -> Json:
    return {"name": name, "in": "header", "required": False, "schema": TEXT, "description": told}


RESUME = _header("Last-Event-ID", "Go on after this event")
SELECT = _query("select", NAMES, "These fields alone; `values.messages` is one inside another")


def _run_parameters() -> Iterator[tuple[str, list[Json]]]:
    one = "/threads/{thread_id}/runs"
    yield (
        f"GET {one}",
        [
            _query("limit", _number(1000, 10), "How many"),
            _query("offset", _number(MAX_OFFSET, 0), "How many to pass over"),
            _query("status", {"type": "string", "enum": list(RUN_STATUSES)}, "Only these"),
            SELECT,
        ],
    )
    cancel = [
        _query("action", ACTION, "Keep what the run did, or take the thread back"),
        _query("wait", FLAG, "Answer when it has stopped"),
    ]
    yield f"POST {one}/{{run_id}}/cancel", cancel
    yield "POST /runs/cancel", cancel[:1]
    for start in (one, "/runs"):
        yield (
            f"GET {start}/{{run_id}}/stream",
            [
                RESUME,
                _query("stream_mode", _modes(STREAM_MODES), "Only events of these modes"),
                _query("cancel_on_disconnect", FLAG, "Stop the run when the client goes"),
            ],
        )


def _thread_parameters() -> Iterator[tuple[str, list[Json]]]:
    one = "/threads/{thread_id}"
    state = [_query("subgraphs", FLAG, "With the states of the graphs inside"), SELECT]
    yield f"GET {one}", [_query("include", NAMES, "`ttl`: with its time to live")]
    yield f"PATCH {one}", [_header("Prefer", "`return=minimal`: answer 204 without a body")]
    yield f"GET {one}/stream", [RESUME, _query("stream_mode", _modes(FOLLOWED), "What is told")]
    yield f"GET {one}/state", state
    yield f"GET {one}/state/{{checkpoint_id}}", state
    yield f"GET {one}/history", [_query("before", TEXT, "Only states before this checkpoint")]


def _other_parameters() -> Iterator[tuple[str, list[Json]]]:
    one = "/assistants/{assistant_id}"
    depth: Json = {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]}
    recurse = [_query("recurse", FLAG, "With the graphs inside those")]
    yield f"GET {one}/graph", [_query("xray", depth, "Open the graphs inside, to this depth")]
    yield f"GET {one}/subgraphs", recurse
    yield f"GET {one}/subgraphs/{{namespace}}", recurse
    yield f"DELETE {one}", [_query("delete_threads", FLAG, "With its threads and their files")]
    yield (
        "GET /store/items",
        [
            _query("key", TEXT, "The item's key", required=True),
            _query("namespace", TEXT, "Its labels, with dots between"),
            _query("refresh_ttl", FLAG, "Let its time begin anew"),
        ],
    )


PARAMETERS: Mapping[str, list[Json]] = dict(
    [*_run_parameters(), *_thread_parameters(), *_other_parameters()]
)
"""By method and path below /api."""

_PAGES = ("X-Pagination-Total", "X-Pagination-Next")
_PLACE = ("Location", "Content-Location")


def response_headers(operation: str) -> tuple[str, ...]:
    """Return the headers that an operation's answer may have.

    >>> response_headers("POST /threads/search"), response_headers("GET /ok")
    (('X-Pagination-Total', 'X-Pagination-Next'), ())
    """
    _method, _, path = operation.partition(" ")
    if operation in {"POST /threads/search", "POST /assistants/search"}:
        return _PAGES
    if path.endswith(
        ("/runs/stream", "/runs/wait", "/cancel", "/{run_id}/stream", "/{run_id}/join")
    ):
        return _PLACE
    return _PLACE[1:] if operation in {"POST /runs", "POST /threads/{thread_id}/runs"} else ()
