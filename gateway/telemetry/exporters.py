"""The OTLP exporters of a running service. Blocking imports: load this module in a worker thread."""

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import Metric
from starlette.types import ASGIApp
from typing_extensions import override

from agent.atomic_write import write_atomically
from gateway.config import Config
from gateway.logs import add_log_handler
from gateway.telemetry.http_spans import HttpSpanMiddleware
from gateway.telemetry.message_spans import SCOPE, MessageSpans
from gateway.telemetry.otlp_logs import OtlpLogHandler
from gateway.telemetry.otlp_metrics import metrics_data
from gateway.telemetry.run_spans import RunSpans
from gateway.telemetry.trace_ids import FixedIdGenerator
from gateway.telemetry_base import Telemetry
from gateway.version import get_version
from store.errors import StoreError

SERVICE_NAME = "parley"
INSTALLATION_FILE = "telemetry_id"
"""A file in the data folder. Its random text makes the trace IDs of two installations differ."""

FLUSH_S = 2.0
"""Time limit for sending the remaining data at shutdown, seconds."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def run_exporters(config: Config) -> AsyncIterator[Telemetry]:
    """Export the configured signals. On exit, send the remaining data within `FLUSH_S`."""
    telemetry = await anyio.to_thread.run_sync(OtlpTelemetry, config)
    try:
        yield telemetry
    finally:
        with anyio.move_on_after(FLUSH_S, shield=True) as limit:
            await _run_in_daemon_thread(telemetry.close)
        if limit.cancelled_caught:
            log.warning("Some telemetry was not exported within %s seconds", FLUSH_S)


class OtlpTelemetry(Telemetry):
    """Exports traces, metrics and logs, each in its own worker thread. Data for a dead collector is lost.

    Blocks: it reads certificates and a file.
    """

    def __init__(self, config: Config) -> None:
        self._config = config.telemetry
        self._resource = _resource(config)
        self._stack = ExitStack()
        self._spans: TracerProvider | None = None
        self._metrics: OTLPMetricExporter | None = None
        if self._config.traces:
            self._open_traces(config)
        if self._config.metrics:
            self._metrics = OTLPMetricExporter()
            self._stack.callback(self._metrics.shutdown)
        if self._config.logs:
            self._open_logs()

    def close(self) -> None:
        """Send the remaining data. Blocks for as long as the collector takes."""
        self._stack.close()

    @override
    def trace_network(self, app: ASGIApp) -> ASGIApp:
        return app if self._spans is None else HttpSpanMiddleware(app, self._tracer)

    @override
    async def export_metrics(self, collect: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
        if self._metrics is None:
            return
        started_ns = time.time_ns()
        while True:
            await anyio.sleep(self._config.export_interval_s)
            try:
                families = list(await collect())
            except StoreError as error:
                log.warning("metrics are not exported: %s", error)
                continue
            now_ns = time.time_ns()
            data = metrics_data(families, self._resource, started_ns=started_ns, now_ns=now_ns)
            await _run_in_daemon_thread(partial(self._metrics.export, data))

    def _open_traces(self, config: Config) -> None:
        spans = TracerProvider(
            resource=self._resource, id_generator=FixedIdGenerator(), shutdown_on_exit=False
        )
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._stack.callback(spans.shutdown)
        self._spans, self._tracer = spans, spans.get_tracer(SCOPE, get_version())
        self.messages = MessageSpans(spans, _installation(config))
        captures = self._config.captures_content
        self.run_tracer = lambda _run_id: RunSpans(self._tracer, captures_content=captures)

    def _open_logs(self) -> None:
        records = LoggerProvider(resource=self._resource, shutdown_on_exit=False)
        records.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        self._stack.callback(records.shutdown)
        handler = OtlpLogHandler(records.get_logger(SCOPE, get_version()))
        add_log_handler(handler)
        self._stack.callback(logging.getLogger().removeHandler, handler)


async def _run_in_daemon_thread(call: Callable[[], object]) -> None:
    """Run a blocking call in a worker thread that may outlive the event loop: a dead collector takes 10 s."""
    loop, done = asyncio.get_running_loop(), anyio.Event()

    def run() -> None:
        try:
            call()
        finally:
            with suppress(RuntimeError):  # the event loop was closed meanwhile
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="telemetry", daemon=True).start()
    await done.wait()


def _resource(config: Config) -> Resource:
    """Return the service's attributes from the environment. Its name is `parley` unless the environment sets one."""
    attributes = {"service.version": get_version()}
    is_named = config.environment.get("OTEL_SERVICE_NAME") or "service.name=" in (
        config.environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    )
    if not is_named:
        attributes["service.name"] = SERVICE_NAME
    return Resource.create(attributes)


def _installation(config: Config) -> str:
    """Return an ID of this database: its URL without credentials, or a random text that is kept in a file."""
    if not config.database.is_sqlite:
        return config.database.url.rpartition("@")[2]
    file: Path = config.home / INSTALLATION_FILE
    if not file.exists():
        write_atomically(file, uuid.uuid4().hex.encode())
    return file.read_text("utf-8")
