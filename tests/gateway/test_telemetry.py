"""OpenTelemetry's variables, its cost while it is off, and log records with secrets."""

import logging
from pathlib import Path

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from agent.trace_context import TRACEPARENT
from gateway.config import load_config
from gateway.config_file import ConfigError
from gateway.logs import add_log_handler, configure_logging
from gateway.telemetry.otlp_logs import OtlpLogHandler
from gateway.telemetry_config import TelemetryConfig, load_telemetry_config

ENDPOINT = "http://collector:4318"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, TelemetryConfig()),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_METRIC_EXPORT_INTERVAL": "500"},
            TelemetryConfig(traces=True, metrics=True, logs=True, export_interval_s=0.5),
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{ENDPOINT}/v1/traces"},
            TelemetryConfig(traces=True),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_LOGS_EXPORTER": "none"},
            TelemetryConfig(traces=True, metrics=True),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "true"},
            TelemetryConfig(),
        ),
    ],
)
def test_variables_decide_what_is_exported(
    variables: dict[str, str], expected: TelemetryConfig
) -> None:
    assert load_telemetry_config(variables) == expected


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_METRIC_EXPORT_INTERVAL": "1s"},
            "OTEL_METRIC_EXPORT_INTERVAL",
        ),
    ],
)
def test_variables_that_cannot_be_used_are_named(
    tmp_path: Path, variables: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={"PARLEY_HOME": str(tmp_path), **variables})
    assert named in str(caught.value)


def test_log_records_are_redacted_and_name_their_trace() -> None:
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    handler = OtlpLogHandler(provider.get_logger("test"))
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    token = TRACEPARENT.set(f"00-{trace_id}-00f067aa0ba902b7-01")
    try:
        configure_logging("info", "json", secrets={"hush-hush"})
        add_log_handler(handler)
        log = logging.getLogger("tests.telemetry")
        log.info("the key is %s", "hush-hush")
        configure_logging("info", "json", secrets={"hush-hush", "later-secret"})
        log.error("it failed", exc_info=ValueError("later-secret"))
        logging.getLogger("opentelemetry.exporter").error("cannot export")
    finally:
        TRACEPARENT.reset(token)
        root.handlers[:], root.level = before, level
    first, second = (one.log_record for one in exporter.get_finished_logs())
    assert first.body == "the key is ***"
    assert f"{first.trace_id:032x}" == trace_id
    attributes = dict(second.attributes or {})
    assert attributes["exception.type"] == "ValueError"
    assert "later-secret" not in str(attributes)
