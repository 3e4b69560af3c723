"""GET /metrics: defines the metrics, and collects their values for prometheus_client at each scrape."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from anyio import get_running_tasks, to_thread
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

from agent.usage.limits import NANO
from bus.platform import ConnectionState
from bus.service import Bus
from gateway.runtime.counters import DurationHistogram
from gateway.services import Services
from gateway.version import get_version
from store.runs import RunStatus
from store.schedules import OccurrenceOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """A metric. `help` is one line, which docs/reference/metrics.md repeats."""

    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


def _counter(text: str, *labels: str) -> MetricSpec:
    return MetricSpec(type="counter", help=text, labels=labels)


def _gauge(text: str, *labels: str) -> MetricSpec:
    return MetricSpec(type="gauge", help=text, labels=labels)


def _histogram(text: str) -> MetricSpec:
    return MetricSpec(type="histogram", help=text)


METRICS: Mapping[str, MetricSpec] = {
    "parley_info": _gauge("Always 1; the label is the version.", "version"),
    "parley_http_requests_total": _counter(
        "Requests from the network; route is the path template or (none).",
        "method",
        "route",
        "status",
    ),
    "parley_http_request_duration_seconds": _histogram(
        "Time from a request to the start of its response."
    ),
    "parley_http_requests_in_progress": _gauge(
        "Requests being served, including open streams and WebSockets."
    ),
    "parley_channel_events_total": _counter(
        "Events received from platforms, by result.", "channel", "reason"
    ),
    "parley_channel_connection_state": _gauge(
        "1 for the current connection state of a channel, 0 for the other states.",
        "channel",
        "state",
    ),
    "parley_busy_conversations": _gauge("Conversations with a running turn."),
    "parley_queued_messages": _gauge("Messages queued behind running turns."),
    "parley_inbox_rows": _gauge("Unfinished accepted messages: new, running.", "state"),
    "parley_outbox_rows": _gauge(
        "Undelivered messages: pending, sending, uncertain, failed.", "state"
    ),
    "parley_takeovers": _gauge("Conversations that a person has taken over from the agent."),
    "parley_recordings_total": _counter(
        "Recordings from people; outcome is ok, or why it was not transcribed.",
        "channel",
        "outcome",
    ),
    "parley_recording_seconds_total": _counter(
        "Length of the transcribed recordings whose length is known, seconds.", "channel"
    ),
    "parley_schedules_due_total": _counter(
        "Times at which schedules were due: queued (started), unchanged, skipped, missed, failed.",
        "outcome",
    ),
    "parley_runs_in_progress": _gauge("Pending and running runs.", "status"),
    "parley_runs_total": _counter("Finished runs, by status.", "status"),
    "parley_run_duration_seconds": _histogram(
        "Time from the request of a run to its end, including the wait for its thread."
    ),
    "parley_model_requests_total": _counter(
        "Model requests of conversations; outcome is ok, or the reason of the failure.",
        "model",
        "outcome",
    ),
    "parley_model_retries_total": _counter("Model requests retried after a failure.", "model"),
    "parley_model_tokens_total": _counter(
        "Tokens of all model calls: input, cached (part of input), output, and reasoning (part of output).",
        "model",
        "kind",
        "type",
    ),
    "parley_model_cost_usd_total": _counter(
        "Cost of all calls of models with a price, US dollars.", "model", "kind"
    ),
    "parley_model_circuit_open": _gauge(
        "1 while a model is skipped because it failed repeatedly.", "model"
    ),
    "parley_mcp_server_state": _gauge(
        "1 for each MCP server, with its current state.", "server", "state"
    ),
    "parley_event_loop_lag_seconds": _histogram("Delay of the event loop's heartbeat."),
    "parley_event_loop_blocked_total": _counter(
        "Times the event loop was blocked for longer than gateway.watchdog_s."
    ),
    "parley_event_loop_tasks": _gauge("Tasks of the event loop."),
}
"""All of Parley's metrics, in the order of exposition. The process's metrics follow."""

INBOX_STATES = ("new", "running")
OUTBOX_STATES = ("pending", "sending", "uncertain", "failed")
DUE_OUTCOMES: tuple[OccurrenceOutcome, ...] = (
    "queued",
    "unchanged",
    "skipped",
    "missed",
    "failed",
)
RUN_ENDS: tuple[RunStatus, ...] = ("success", "error", "timeout", "interrupted")
RUN_STATES: tuple[RunStatus, ...] = ("pending", "running")


class _Snapshot(Collector):
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def add(self, name: str, value: float, *labels: object) -> None:
        """Add a sample of a counter or gauge."""
        family = self._family(name)
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)  # noqa: S101
        family.add_metric([str(label) for label in labels], value)

    def add_histogram(self, name: str, histogram: DurationHistogram) -> None:
        """Add a histogram."""
        family = self._family(name)
        assert isinstance(family, HistogramMetricFamily)  # noqa: S101
        buckets = [(str(bound), float(count)) for bound, count in histogram.cumulative()]
        buckets.append(("+Inf", float(histogram.count)))
        family.add_metric([], buckets, histogram.total_s)

    @override
    def collect(self) -> Iterable[Metric]:
        """Return the metric families for the registry."""
        return self._families.values()

    def _family(self, name: str) -> Metric:
        if name not in self._families:
            spec = METRICS[name]
            kinds = {
                "counter": CounterMetricFamily,
                "gauge": GaugeMetricFamily,
                "histogram": HistogramMetricFamily,
            }
            self._families[name] = kinds[spec.type](name, spec.help, labels=spec.labels)
        return self._families[name]


async def render_metrics(services: Services) -> bytes:
    """Return the metrics in Prometheus' text format.

    Raises:
        StoreError: The journal cannot be read.
    """
    return await to_thread.run_sync(generate_latest, await collect_metrics(services))


async def collect_metrics(services: Services) -> CollectorRegistry:
    """Return the current metrics.

    Raises:
        StoreError: The journal cannot be read.
    """
    page = _Snapshot()
    page.add("parley_info", 1, await to_thread.run_sync(get_version))
    _add_http(page, services)
    if services.bus is not None:
        await _add_channels(page, services.bus)
    _add_runs(page, services)
    _add_models(page, services)
    for server in await services.agent_services.mcp.statuses():
        page.add("parley_mcp_server_state", 1, server.name, server.state)
    page.add_histogram("parley_event_loop_lag_seconds", services.watchdog.lag)
    page.add("parley_event_loop_blocked_total", services.watchdog.blocked_count)
    page.add("parley_event_loop_tasks", len(get_running_tasks()))
    registry = CollectorRegistry()
    registry.register(page)
    ProcessCollector(registry=registry)
    return registry


def _add_http(page: _Snapshot, services: Services) -> None:
    for key, count in sorted(services.stats.requests.items()):
        page.add("parley_http_requests_total", count, *key)
    page.add_histogram("parley_http_request_duration_seconds", services.stats.response_seconds)
    page.add("parley_http_requests_in_progress", services.stats.in_progress)


async def _add_channels(page: _Snapshot, bus: Bus) -> None:
    for (channel, reason), count in sorted(bus.counters().items()):
        page.add("parley_channel_events_total", count, channel, reason)
    for channel, health in sorted(bus.health().items()):
        for state in ConnectionState:
            page.add("parley_channel_connection_state", health.state is state, channel, state)
    busy, queued = bus.load()
    page.add("parley_busy_conversations", busy)
    page.add("parley_queued_messages", queued)
    inbox, outbox = await bus.inbox.count_by_state(), await bus.outbox.count_by_state()
    for name in INBOX_STATES:
        page.add("parley_inbox_rows", inbox.get(name, 0), name)
    for name in OUTBOX_STATES:
        page.add("parley_outbox_rows", outbox.get(name, 0), name)
    page.add("parley_takeovers", await bus.takeovers.count())
    _add_speech(page, bus)
    for outcome in DUE_OUTCOMES:
        page.add("parley_schedules_due_total", bus.scheduler.counts[outcome], outcome)


def _add_speech(page: _Snapshot, bus: Bus) -> None:
    for (channel, outcome), count in sorted(bus.speech_stats.counts().items()):
        page.add("parley_recordings_total", count, channel, outcome)
    for channel, seconds in sorted(bus.speech_stats.seconds().items()):
        page.add("parley_recording_seconds_total", seconds, channel)


def _add_runs(page: _Snapshot, services: Services) -> None:
    current, finished = services.runs.count_by_status(), services.runs.counters
    for state in RUN_STATES:
        page.add("parley_runs_in_progress", current.get(state, 0), state)
    for status in RUN_ENDS:
        page.add("parley_runs_total", finished.finished_by_status.get(status, 0), status)
    page.add_histogram("parley_run_duration_seconds", finished.durations)


def _add_models(page: _Snapshot, services: Services) -> None:
    breakers = services.agent_services.circuit_breakers
    for (model, outcome), count in sorted(breakers.requests.items()):
        page.add("parley_model_requests_total", count, model, outcome)
    usage = services.agent_services.usage
    for (model, kind, name), count in sorted(usage.tokens.items()):
        page.add("parley_model_tokens_total", count, model, kind, name)
    for (model, kind), count in sorted(usage.nano_usd.items()):
        page.add("parley_model_cost_usd_total", count / NANO, model, kind)
    for model, count in sorted(breakers.retries.items()):
        page.add("parley_model_retries_total", count, model)
    for entry in services.agent_services.config.get().chat_models:
        page.add("parley_model_circuit_open", breakers.is_open(entry.name), entry.name)
