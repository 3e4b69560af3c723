"""Converts the metrics of GET /metrics to OpenTelemetry's form."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_BOUND = "le"
"""The label of a bucket's upper bound."""


def metrics_data(
    families: Iterable[Metric], resource: Resource, *, started_ns: int, now_ns: int
) -> MetricsData:
    """Return metrics for the exporter. Counters have no `_total` in their names, because Prometheus receivers add it.

    Args:
        families: The metrics from the registry.
        resource: The resource that the metrics describe.
        started_ns: Start of counting, Unix nanoseconds.
        now_ns: Time of collection, Unix nanoseconds.
    """
    times = (started_ns, now_ns)
    metrics = [
        OtlpMetric(name=one.name, description=one.documentation, unit="", data=data)
        for one in families
        if (data := _data(one, times)) is not None
    ]
    scope = ScopeMetrics(InstrumentationScope("parley"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data(family: Metric, times: tuple[int, int]) -> Sum | Gauge | Histogram | None:
    match family.type:
        case "counter":
            counts = [one for one in family.samples if one.name == f"{family.name}_total"]
            points = [_number(sample, times) for sample in counts]
            return Sum(points, _CUMULATIVE, is_monotonic=True)
        case "gauge":
            return Gauge([_number(sample, times) for sample in family.samples])
        case "histogram":
            return Histogram(_histograms(family.samples, times), _CUMULATIVE)
        case _:
            return None


def _number(sample: Sample, times: tuple[int, int]) -> NumberDataPoint:
    return NumberDataPoint(dict(sample.labels), *times, value=float(sample.value))


def _histograms(samples: Sequence[Sample], times: tuple[int, int]) -> list[HistogramDataPoint]:
    """Return a point for each set of labels."""
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((key, value) for key, value in sample.labels.items() if key != _BOUND)
        by_labels.setdefault(labels, []).append(sample)
    return [_histogram(dict(labels), found, times) for labels, found in by_labels.items()]


def _histogram(
    labels: Mapping[str, str], samples: Sequence[Sample], times: tuple[int, int]
) -> HistogramDataPoint:
    """Return a point. Prometheus buckets are cumulative; OpenTelemetry buckets count only their own values."""
    buckets = [
        (float(one.labels[_BOUND]), int(one.value)) for one in samples if _BOUND in one.labels
    ]
    totals = [0, *(count for _, count in buckets)]
    total = next((one.value for one in samples if one.name.endswith("_sum")), 0.0)
    return HistogramDataPoint(
        labels,
        *times,
        count=totals[-1],
        sum=float(total),
        bucket_counts=[after - before for before, after in pairwise(totals)],
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        min=None,  # type: ignore[arg-type]  # unknown, so omitted from the message
        max=None,  # type: ignore[arg-type]
    )
