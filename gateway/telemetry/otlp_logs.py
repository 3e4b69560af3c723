"""Sends log records over OTLP, with their trace and with secrets redacted."""

import logging
import traceback

from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from typing_extensions import override

from agent.trace_context import TRACEPARENT
from gateway.logs import ExtraLogHandler, log_context
from gateway.telemetry.trace_ids import context_of

OWN_LOGGERS = "opentelemetry"
"""Loggers of the exporters. Their records about a failed export would cause another export."""

_NANO = 1_000_000_000
_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)


class OtlpLogHandler(ExtraLogHandler):
    """Passes records to an OpenTelemetry logger."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        if record.name.partition(".")[0] == OWN_LOGGERS:
            return
        try:
            self._logger.emit(self._translate(record))
        except Exception:  # noqa: BLE001 - logging reports errors of handlers itself
            self.handleError(record)

    def _translate(self, record: logging.LogRecord) -> LogRecord:
        attributes = {f"parley.{name}": value for name, value in log_context().items()}
        attributes["log.logger"] = record.name
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            attributes["exception.type"] = type(error).__qualname__
            text = "".join(traceback.format_exception(error))
            attributes["exception.stacktrace"] = self.redact(text)
        return LogRecord(
            timestamp=int(record.created * _NANO),
            context=context_of(TRACEPARENT.get()),
            severity_text=record.levelname,
            severity_number=_severity(record.levelno),
            body=self.redact(record.getMessage()),
            attributes=attributes,
        )


def _severity(level: int) -> SeverityNumber:
    return next((number for lowest, number in _SEVERITIES if level >= lowest), SeverityNumber.DEBUG)
