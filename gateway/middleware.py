"""Request middleware: assigns request IDs, counts requests, and records changes in the audit log.

Plain ASGI. A streamed response passes through unchanged, at the cost of one check per chunk.
"""

import logging
import re
import secrets
import time
from collections.abc import Awaitable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.audit import MAX_TARGET_CHARS, AuditEntry, AuditLog
from gateway.rate_limits import ClientRateLimiter, client_key
from gateway.request_stats import REQUEST_ID, UNKNOWN_ROUTE, RequestStats
from gateway.token_scopes import is_reading
from store.work_group import WORK_GROUP

REQUEST_ID_HEADER = b"x-request-id"
AUTHENTICATED_AS = "parley.who"
"""Scope key under which `AccessMiddleware` stores the token's fingerprint."""

FROM_BROWSER = "parley.from_browser"
"""Scope key that `AccessMiddleware` sets if a request belongs to a session of the console."""

WRONG_TOKEN_SENT = "parley.wrong_token"  # noqa: S105 - a name
"""Scope key that `AccessMiddleware` sets if a request has a wrong token."""

WRONG_TOKEN_HOLDER = "(wrong token)"  # noqa: S105 - a text
"""Value of `who` for such requests."""

AUDIT_DETAIL = "parley.audit_detail"
"""Scope key under which a route may store additional text for the audit log."""

API_GROUP = "api"
"""Work group of requests. Requests from platforms belong to their channels."""

WEBSOCKET_METHOD = "WEBSOCKET"
"""Method of WebSockets in statistics and in the audit log."""

ACCEPTED, REFUSED = 101, 403
"""Statuses recorded for WebSockets: of an accepted handshake, and of a connection closed before (as uvicorn does)."""

log = logging.getLogger(__name__)

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
API_PREFIX = "/api"
_LANGGRAPH_PREFIX = "/api/langgraph/"
_CLIENT_ROUTES = re.compile(r"/api/(threads|runs|store|channels/terminal)(/|$)")


def is_audited(method: str, path: str, *, from_browser: bool = False) -> bool:
    """Return whether a request is an action of an operator.

    A program's requests about its own conversations are not, except deletions. If the console sends them, they are.

    >>> is_audited("PUT", "/api/skills/tides"), is_audited("POST", "/api/threads/1/runs/wait")
    (True, False)
    >>> is_audited("DELETE", "/api/langgraph/threads/1"), is_audited("GET", "/api/memory")
    (True, False)
    >>> is_audited("PATCH", "/api/assistants/1"), is_audited("POST", "/api/assistants/search")
    (True, False)
    >>> is_audited("POST", "/api/threads/1/copy", from_browser=True)
    True
    """
    if is_reading(method, path):
        return False
    path = path.replace(_LANGGRAPH_PREFIX, "/api/", 1)
    if from_browser or _CLIENT_ROUTES.match(path) is None:
        return True
    return method == "DELETE" and path.startswith("/api/threads/")


def route_template(scope: Scope) -> str:
    """Return the path template of a request's route; `UNKNOWN_ROUTE` without a route."""
    own = getattr(scope.get("route"), "path_format", None)
    if own is None:
        return UNKNOWN_ROUTE
    return f"{API_PREFIX}{own}" if scope["path"].startswith(f"{API_PREFIX}/") else str(own)


class RequestMiddleware:
    """The outermost middleware of the network port."""

    def __init__(self, app: ASGIApp, *, stats: RequestStats, audit: AuditLog) -> None:
        self._app = app
        self._stats = stats
        self._audit = audit
        self._by_client = ClientRateLimiter(per_s=1 / 60, burst=5)
        self._in_all = ClientRateLimiter(per_s=1.0, burst=50)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        record = _RequestRecord(scope, self._stats, send)
        mark = REQUEST_ID.set(record.request_id.decode())
        group = WORK_GROUP.set(API_GROUP)
        self._stats.in_progress += 1
        try:
            await self._app(scope, receive, record.send)
        finally:
            self._stats.in_progress -= 1
            WORK_GROUP.reset(group)
            is_request = scope["type"] == "http" and AUTHENTICATED_AS in scope
            from_browser = FROM_BROWSER in scope
            if is_request and is_audited(scope["method"], scope["path"], from_browser=from_browser):
                await self._audit.append(record.audit_entry())
            if WRONG_TOKEN_SENT in scope:
                await self._record_wrong_token(record)
            REQUEST_ID.reset(mark)

    async def _record_wrong_token(self, record: "_RequestRecord") -> None:
        """Log and audit a request with a wrong token, unless there were too many recently."""
        entry = record.audit_entry()
        if self._by_client.acquire(client_key(entry.address)) or self._in_all.acquire(""):
            return
        log.warning("wrong admin token from %s: %s", entry.address, entry.action)
        await self._audit.append(entry)


class _RequestRecord:
    """One request and its response."""

    def __init__(self, scope: Scope, stats: RequestStats, send: Send) -> None:
        self.request_id = _request_id(scope)
        self.scope = scope
        self._stats = stats
        self._send = send
        self._started_at = time.perf_counter()
        self._status = 0

    def send(self, message: Message) -> Awaitable[None]:
        """Forward a message of the response. Adds the request ID to its headers."""
        if not self._status and (status := _response_status(message)):
            self._on_start(message, status)
        return self._send(message)

    def _on_start(self, message: MutableMapping[str, Any], status: int) -> None:
        self._status = status
        if message["type"] != "websocket.close":
            message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER, self.request_id)]
        seconds = time.perf_counter() - self._started_at
        self._stats.record(self._method(), self._route(), status, seconds)

    def _method(self) -> str:
        return str(self.scope.get("method", WEBSOCKET_METHOD))

    def _route(self) -> str:
        return route_template(self.scope)

    def audit_entry(self) -> AuditEntry:
        """Return the entry for the audit log."""
        scope = self.scope
        query = scope.get("query_string", b"").decode("latin-1")
        path = scope.get("raw_path") or scope["path"].encode()
        target = path.decode("latin-1").partition("?")[0] + (f"?{query}" if query else "")
        return AuditEntry(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            who=scope.get(AUTHENTICATED_AS, WRONG_TOKEN_HOLDER),
            address=(scope.get("client") or ("",))[0],
            request_id=self.request_id.decode(),
            action=f"{self._method()} {self._route()}",
            target=target[:MAX_TARGET_CHARS],
            status=self._status,
            detail=scope.get(AUDIT_DETAIL, ""),
        )


def _response_status(message: Message) -> int:
    """Return the status of the response that a message starts; 0 = it does not start one."""
    match message["type"]:
        case "http.response.start" | "websocket.http.response.start":
            return int(message["status"])
        case "websocket.accept":
            return ACCEPTED
        case "websocket.close":
            return REFUSED
        case _:
            return 0


def _request_id(scope: Scope) -> bytes:
    """Return the request's own ID if it is valid, otherwise a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
