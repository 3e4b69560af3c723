"""Logging setup: console and JSON formatters with secret redaction."""

import json
import logging
import re
import sys
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

from typing_extensions import override

from bus.log_context import LOG_CONTEXT
from gateway.request_stats import REQUEST_ID
from gateway.runtime.log_context import CURRENT_RUN

REDACTED = "***"
QUIET_LOGGERS = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "aiosqlite",
    "asyncio",
    "urllib3",
    "markdown_it",
    "mcp",
    "openai",
    "uvicorn.access",
)
"""Loggers limited to WARNING: their INFO lines are noise or contain URLs with tokens."""

_TOKENS = re.compile(
    r"(xox[a-z]-|xapp-|bot(?=\d+:))[A-Za-z0-9:_-]{6,}|(?<=Bearer )[A-Za-z0-9._~+/-]{8,}"
)
"""Slack tokens, Telegram tokens in URLs, Authorization headers."""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and line separators, except newline and tab."""

MAX_FILE_BYTES = 10_000_000
MAX_ROTATED_FILES = 3
"""Number of rotated log files to keep. The oldest is deleted."""


class SecretRedactor:
    """Redacts configured secrets, and everything that looks like a platform token, in a formatted line.

    >>> SecretRedactor(["hush-hush"])("got hush-hush from /bot123:abcdefghij/getMe")
    'got *** from /***/getMe'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        longest_first = sorted({text for text in secrets if text}, key=len, reverse=True)
        known = "|".join(re.escape(text) for text in longest_first)
        self._known = re.compile(known) if known else None

    def __call__(self, line: str) -> str:
        """Return the line with secrets redacted."""
        if self._known:
            line = self._known.sub(REDACTED, line)
        return _TOKENS.sub(REDACTED, line)


def log_context() -> dict[str, str]:
    """Return the known context of a log line: channel, conversation, thread, run and request."""
    found = dict(LOG_CONTEXT.get())
    if run := CURRENT_RUN.get():
        found |= {"thread": run.thread_id, "run": run.run_id}
    if request := REQUEST_ID.get():
        found["request"] = request
    return found


class ExtraLogHandler(logging.Handler):
    """An additional handler for all records. `configure_logging` keeps it.

    Attributes:
        redact: Redacts the secrets of the current configuration.
    """

    redact = SecretRedactor(())


def add_log_handler(handler: ExtraLogHandler) -> None:
    """Also send log records to another handler, which redacts the same secrets."""
    root = logging.getLogger()
    for other in root.handlers:
        if isinstance(other.formatter, ConsoleLogFormatter | JsonLogFormatter):
            handler.redact = other.formatter.redact
    root.addHandler(handler)


class ConsoleLogFormatter(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, context. Tracebacks follow."""

    def __init__(self, redact: SecretRedactor) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        self.redact = redact

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        context = ", ".join(f"{name} {value}" for name, value in log_context().items())
        return super().formatMessage(record) + (f" ({context})" if context else "")

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record.

        Additional lines are indented and control characters are escaped, so that external text cannot imitate a
        record or control the terminal.
        """
        text = _CONTROL.sub(_escape_control, self.redact(super().format(record)))
        return text.replace("\n", "\n    ")


class JsonLogFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def __init__(self, redact: SecretRedactor) -> None:
        super().__init__()
        self.redact = redact

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        fields: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.redact(record.getMessage()),
            **log_context(),
        }
        if record.exc_info and record.exc_info[1]:
            fields["error"] = self.redact("".join(traceback.format_exception(record.exc_info[1])))
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(
    level: str,
    style: Literal["auto", "console", "json"],
    *,
    secrets: Iterable[str],
    file: Path | None = None,
) -> None:
    """Send log records to standard error or to `file`. Replaces any previous configuration except extra handlers.

    Raises:
        OSError: The file cannot be opened.
    """
    redact = SecretRedactor(secrets)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = RotatingFileHandler(
            file, maxBytes=MAX_FILE_BYTES, backupCount=MAX_ROTATED_FILES, encoding="utf-8"
        )
    is_console = style == "console" or (
        style == "auto" and (file is not None or sys.stderr.isatty())
    )
    handler.setFormatter(ConsoleLogFormatter(redact) if is_console else JsonLogFormatter(redact))
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, ExtraLogHandler):
            old.redact = redact
            continue
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def _escape_control(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
