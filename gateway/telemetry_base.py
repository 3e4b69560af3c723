"""Telemetry: the service's reports to OpenTelemetry. The base class records nothing; gateway.telemetry replaces it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from agent.tracing import HandlerFactory
from bus.tracing import NO_TRACER, MessageTracer

if TYPE_CHECKING:
    from prometheus_client import Metric


class Telemetry:
    """Records nothing.

    Attributes:
        messages: Traces messages.
        run_tracer: Traces runs; None = runs are not traced.
    """

    messages: MessageTracer = NO_TRACER
    run_tracer: HandlerFactory | None = None

    def trace_network(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose requests from the network are recorded."""
        return app

    async def export_metrics(self, collect: "Callable[[], Awaitable[Iterable[Metric]]]") -> None:
        """Export what `collect` returns at intervals, until canceled. `collect` may raise StoreError."""
