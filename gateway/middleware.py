"""Where requests from the network come in: each gets an id, is counted, and written down if it changes something.

Plain ASGI. A streamed answer passes through untouched: per piece there is one test and no task, no coroutine.
"""

import re
import secrets
import time
from collections.abc import Awaitable, MutableMapping
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.audit import MAX_TARGET_CHARS, AuditEntry, AuditLog
from gateway.request_stats import REQUEST_ID, UNKNOWN_ROUTE, RequestStats

REQUEST_ID_HEADER = b"x-request-id"
AUTHENTICATED_AS = "parley.who"
"""The key of the scope under which the guard says whose request it let through."""

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
API_PREFIX = "/api"
_LANGGRAPH_PREFIX = "/api/langgraph/"
_CLIENT_ROUTES = re.compile(
    r"/api/(threads|runs|store|channels/terminal|assistants/(search|count|[^/]+/versions))(/|$)"
)
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_audited(method: str, path: str) -> bool:
    """Return whether a request is an admin's action: it changes more than a client's own conversations.

    >>> is_audited("PUT", "/api/skills/tides"), is_audited("POST", "/api/threads/1/runs/wait")
    (True, False)
    >>> is_audited("DELETE", "/api/langgraph/threads/1"), is_audited("GET", "/api/memory")
    (True, False)
    >>> is_audited("PATCH", "/api/assistants/1"), is_audited("POST", "/api/assistants/search")
    (True, False)
    """
    if method in _READ_METHODS:
        return False
    path = path.replace(_LANGGRAPH_PREFIX, "/api/", 1)
    if _CLIENT_ROUTES.match(path) is None:
        return True
    return method == "DELETE" and path.startswith("/api/threads/")


class RequestMiddleware:
    """Stands before everything else at the port."""

    def __init__(self, app: ASGIApp, *, traffic: RequestStats, audit: AuditLog) -> None:
        self._app = app
        self._traffic = traffic
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = _RequestRecord(scope, self._traffic, send)
        mark = REQUEST_ID.set(record.request_id.decode())
        self._traffic.open += 1
        try:
            await self._app(scope, receive, record.send)
        finally:
            self._traffic.open -= 1
            REQUEST_ID.reset(mark)
            if AUTHENTICATED_AS in scope and is_audited(scope["method"], scope["path"]):
                await self._audit.append(record.audit_entry())


class _RequestRecord:
    """One request."""

    def __init__(self, scope: Scope, traffic: RequestStats, send: Send) -> None:
        self.request_id = _request_id(scope)
        self._scope = scope
        self._traffic = traffic
        self._send = send
        self._started_at = time.perf_counter()
        self._status = 0

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message of the answer on; its head is noted and gets the id."""
        if message["type"] == "http.response.start":
            self._on_start(message)
        return self._send(message)

    def _on_start(self, message: MutableMapping[str, Any]) -> None:
        self._status = message["status"]
        message["headers"] = [*message.get("headers", ()), (REQUEST_ID_HEADER, self.request_id)]
        seconds = time.perf_counter() - self._started_at
        self._traffic.add(self._scope["method"], self._route(), self._status, seconds)

    def _route(self) -> str:
        """Return the template of the path; a route knows its own part of it."""
        own = getattr(self._scope.get("route"), "path_format", None)
        if own is None:
            return UNKNOWN_ROUTE
        return (
            f"{API_PREFIX}{own}" if self._scope["path"].startswith(f"{API_PREFIX}/") else str(own)
        )

    def audit_entry(self) -> AuditEntry:
        """Return what is written down of it."""
        scope = self._scope
        query = scope.get("query_string", b"").decode("latin-1")
        path = scope.get("raw_path") or scope["path"].encode()
        target = path.decode("latin-1").partition("?")[0] + (f"?{query}" if query else "")
        return AuditEntry(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            who=scope[AUTHENTICATED_AS],
            address=(scope.get("client") or ("",))[0],
            request_id=self.request_id.decode(),
            action=f"{scope['method']} {self._route()}",
            target=target[:MAX_TARGET_CHARS],
            status=self._status,
        )


def _request_id(scope: Scope) -> bytes:
    """Return the id that came with a request, if it is one, else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER and _ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()
