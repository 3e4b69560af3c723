"""ASGI middleware: continues W3C trace contexts, and records requests from the network as spans."""

from collections.abc import Awaitable

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.trace_context import HEADER, TRACEPARENT
from gateway.middleware import route_template
from gateway.request_stats import UNKNOWN_ROUTE
from gateway.telemetry.trace_ids import context_of, traceparent_of

UNTRACED_PATHS = ("/health", "/metrics")
"""Paths that probes request every few seconds, with the paths below them."""

_SERVER_ERROR = 500


class TraceContextMiddleware:
    """Continues the trace that a request names in its `traceparent` header."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        token = TRACEPARENT.set(_given(scope))
        try:
            await self._app(scope, receive, send)
        finally:
            TRACEPARENT.reset(token)


class HttpSpanMiddleware:
    """Records each request as a span. WebSockets and probes only continue the trace that they name."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._continue = TraceContextMiddleware(app)
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or _is_probe(scope["path"]):
            await self._continue(scope, receive, send)
            return
        method = str(scope["method"])
        attributes = {
            "http.request.method": method,
            "url.path": str(scope["path"]),
            "url.scheme": str(scope.get("scheme", "http")),
        }
        context = context_of(_given(scope))
        span = self._tracer.start_span(method, context, SpanKind.SERVER, attributes)
        token = TRACEPARENT.set(traceparent_of(span))

        def note_status(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                _add_status(span, int(message["status"]))
            return send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            TRACEPARENT.reset(token)
            route = route_template(scope)
            if route != UNKNOWN_ROUTE:
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            span.end()


def _given(scope: Scope) -> str:
    """Return the valid `traceparent` of a request; "" = none."""
    if scope["type"] not in {"http", "websocket"}:
        return ""
    given = Headers(scope=scope).get(HEADER, "")
    return given if context_of(given) else ""


def _is_probe(path: str) -> bool:
    return any(path == probe or path.startswith(f"{probe}/") for probe in UNTRACED_PATHS)


def _add_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        span.set_attribute("error.type", str(status))
        span.set_status(Status(StatusCode.ERROR))
