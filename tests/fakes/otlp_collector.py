"""An OpenTelemetry collector on 127.0.0.1: accepts OTLP over HTTP, and rejects what the specification forbids."""

import gzip
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class ReceivedSpan:
    """A received span. IDs are hexadecimal. `parent_id` "" = a root."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: Mapping[str, Any]
    links: tuple[str, ...]


@dataclass(frozen=True)
class ReceivedLog:
    """A received log record. `trace_id` "" = it belongs to no trace."""

    body: str
    severity: str
    trace_id: str
    attributes: Mapping[str, Any]


@dataclass
class OtlpCollector:
    """The received data.

    Attributes:
        metrics: Type ("sum", "gauge", "histogram") and points (attributes, value or count), by name.
        resources: The attributes of all resources.
        headers: The headers of all requests.
    """

    port: int = 0
    spans: list[ReceivedSpan] = field(default_factory=list)
    logs: list[ReceivedLog] = field(default_factory=list)
    metrics: dict[str, tuple[str, list[tuple[dict[str, Any], float]]]] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans with a name."""
        return [span for span in self.spans if span.name == name]

    async def take_traces(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await self._body(request))
        for resource in message.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                assert len(span.trace_id) == 16
                assert len(span.span_id) == 8
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
                self.spans.append(
                    ReceivedSpan(
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                        is_error=span.status.code == Status.STATUS_CODE_ERROR,
                        attributes=_attributes(span.attributes),
                        links=tuple(link.trace_id.hex() for link in span.links),
                    )
                )
        return web.Response(content_type="application/x-protobuf")

    async def take_metrics(self, request: web.Request) -> web.Response:
        message = ExportMetricsServiceRequest.FromString(await self._body(request))
        for resource in message.resource_metrics:
            self.resources.append(_attributes(resource.resource.attributes))
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                kind = str(metric.WhichOneof("data"))
                points: list[tuple[dict[str, Any], float]] = []
                for point in getattr(metric, kind).data_points:
                    assert point.time_unix_nano > 0
                    if kind == "histogram":
                        assert sum(point.bucket_counts) == point.count
                        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                    value = point.count if kind == "histogram" else point.as_double
                    points.append((_attributes(point.attributes), float(value)))
                self.metrics[metric.name] = (kind, points)
        return web.Response(content_type="application/x-protobuf")

    async def take_logs(self, request: web.Request) -> web.Response:
        message = ExportLogsServiceRequest.FromString(await self._body(request))
        for resource in message.resource_logs:
            self.resources.append(_attributes(resource.resource.attributes))
            for record in (one for scope in resource.scope_logs for one in scope.log_records):
                self.logs.append(
                    ReceivedLog(
                        body=record.body.string_value,
                        severity=record.severity_text,
                        trace_id=record.trace_id.hex(),
                        attributes=_attributes(record.attributes),
                    )
                )
        return web.Response(content_type="application/x-protobuf")

    async def _body(self, request: web.Request) -> bytes:
        assert request.content_type == "application/x-protobuf"
        self.headers.append(dict(request.headers))
        body = (
            await request.read()
        )  # aiohttp does not decompress a body if the header says gzip twice.
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.raw += body
        return body


@asynccontextmanager
async def otlp_collector() -> AsyncIterator[OtlpCollector]:
    """Run a collector."""
    collector = OtlpCollector()
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/traces", collector.take_traces)
    app.router.add_post("/v1/metrics", collector.take_metrics)
    app.router.add_post("/v1/logs", collector.take_logs)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.port = runner.addresses[0][1]
        yield collector
    finally:
        await runner.cleanup()


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:  # noqa: ANN401 - JSON
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
