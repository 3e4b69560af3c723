"""TelemetryConfig, read from OpenTelemetry's environment variables. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SIGNALS = ("traces", "metrics", "logs")
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
DEFAULT_EXPORT_S = 60.0
"""Default interval of metric exports without OTEL_METRIC_EXPORT_INTERVAL, the same as OpenTelemetry's."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_PROTOCOL = "http/protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """The signals to export over OTLP; none by default.

    Attributes:
        captures_content: Whether spans contain what people and models write.
        export_interval_s: Interval of metric exports, seconds.
    """

    traces: bool = False
    metrics: bool = False
    logs: bool = False
    captures_content: bool = False
    export_interval_s: float = DEFAULT_EXPORT_S

    @property
    def is_enabled(self) -> bool:
        """Whether anything is exported."""
        return self.traces or self.metrics or self.logs


def load_telemetry_config(environment: Mapping[str, str]) -> TelemetryConfig:
    """Read OpenTelemetry's variables. A signal is exported if it has an endpoint and its exporter is `otlp`.

    The exporters read the other variables themselves: headers, time limits, compression, certificates, sampler,
    batches.

    Raises:
        ValueError: A variable has an invalid value. The message says what to do.

    >>> load_telemetry_config({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}).is_enabled
    True
    >>> load_telemetry_config({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}).is_enabled
    False
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TelemetryConfig()
    enabled = {signal: _is_exported(environment, signal) for signal in SIGNALS}
    return TelemetryConfig(
        traces=enabled["traces"],
        metrics=enabled["metrics"],
        logs=enabled["logs"],
        captures_content=environment.get(CAPTURE_CONTENT, "").strip().lower() in _TRUE,
        export_interval_s=_export_interval_s(environment),
    )


def _is_exported(environment: Mapping[str, str], signal: str) -> bool:
    """Return whether a signal is exported. Raises ValueError."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    name = own if environment.get(own) else ENDPOINT
    endpoint = environment.get(name, "").strip()
    exporter = f"OTEL_{signal.upper()}_EXPORTER"
    kind = environment.get(exporter, "").strip().lower() or "otlp"
    if not endpoint or kind == "none":
        return False
    if kind != "otlp":
        raise ValueError(f"{exporter} must be otlp or none")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError(f"{name} must start with http:// or https://")
    _check_protocol(environment, signal)
    return True


def _check_protocol(environment: Mapping[str, str], signal: str) -> None:
    """Raise ValueError if a protocol other than HTTP is requested."""
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environment.get(name, "").strip() or _PROTOCOL
        if protocol != _PROTOCOL:
            raise ValueError(
                f"{name} must be {_PROTOCOL}: use the collector's HTTP port, by default 4318"
            )


def _export_interval_s(environment: Mapping[str, str]) -> float:
    """Return the interval of metric exports, seconds. Raises ValueError."""
    text = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if not text:
        return DEFAULT_EXPORT_S
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("OTEL_METRIC_EXPORT_INTERVAL must be a number of milliseconds")
    return int(text) / 1000
