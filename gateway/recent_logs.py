"""The last log lines of this process, in memory, for the console. Secrets are redacted as in the log itself."""

import logging
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from typing_extensions import override

from bus.characters import replace_surrogates
from gateway.logs import ExtraLogHandler, add_log_handler, log_context

MAX_CHARS = 4_000_000
"""Characters to keep, of messages and tracebacks: about 20,000 lines."""

MAX_MESSAGE_CHARS = 4_000
MAX_ERROR_CHARS = 12_000
_LINE_CHARS = 200
"""The size of a line without its texts, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the log.

    Attributes:
        id: Increases by one; starts again when the process restarts.
        time: Unix seconds.
        level: debug, info, warning, error or critical.
        logger: The module.
        error: The traceback; "" = none.
        context: The channel, conversation, thread, run and request that the line belongs to.
    """

    id: int
    time: float
    level: str
    logger: str
    message: str
    error: str
    context: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which lines to return; "" and 0 = all.

    Attributes:
        level: The lowest level, as a number of `logging`.
        logger: The start of the logger's name.
        words: Text that the message, traceback or context contains.
        request: The ID of the request.
        thread: The ID of the thread.
        since: Unix seconds.
    """

    level: int = 0
    logger: str = ""
    words: str = ""
    request: str = ""
    thread: str = ""
    since: float = 0.0

    def accepts(self, line: LogLine) -> bool:
        """Return whether a line passes the filter."""
        context = line.context
        return (
            line.time >= self.since
            and logging.getLevelNamesMapping()[line.level.upper()] >= self.level
            and line.logger.startswith(self.logger)
            and self.request in ("", context.get("request"))
            and self.thread in ("", context.get("thread"))
            and self.words.lower()
            in "\n".join([line.message, line.error, *context.values()]).lower()
        )


class RecentLogs(ExtraLogHandler):
    """Keeps the last log lines. Thread-safe."""

    def __init__(self, *, max_chars: int = MAX_CHARS) -> None:
        super().__init__()
        self._max_chars = max_chars
        self._chars = 0
        self._lines: deque[LogLine] = deque()
        self._last_id = 0
        self._guard = threading.Lock()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        try:
            message = replace_surrogates(self.redact(record.getMessage())[:MAX_MESSAGE_CHARS])
            error = ""
            if record.exc_info and record.exc_info[1]:
                whole = "".join(traceback.format_exception(record.exc_info[1]))
                error = replace_surrogates(self.redact(whole)[-MAX_ERROR_CHARS:])
        except Exception:  # noqa: BLE001 - as all handlers do: a log line never fails its caller
            self.handleError(record)
            return
        level = record.levelname.lower() if record.levelname.isalpha() else "info"
        with self._guard:
            self._last_id += 1
            self._lines.append(
                LogLine(
                    id=self._last_id,
                    time=record.created,
                    level=level,
                    logger=record.name,
                    message=message,
                    error=error,
                    context=log_context(),
                )
            )
            self._chars += len(message) + len(error) + _LINE_CHARS
            while self._chars > self._max_chars:
                old = self._lines.popleft()
                self._chars -= len(old.message) + len(old.error) + _LINE_CHARS

    def list_recent(
        self, wanted: LogFilter, *, limit: int | None = None, before: int | None = None
    ) -> list[LogLine]:
        """Return lines, newest first. `before`: the ID of a line; older lines follow."""
        with self._guard:
            lines = list(self._lines)
        found = []
        for line in reversed(lines):
            if (before is None or line.id < before) and wanted.accepts(line):
                found.append(line)
                if len(found) == limit:
                    break
        return found


def iso(line: LogLine) -> str:
    """Return a line's time as ISO 8601 with a time zone and milliseconds."""
    return datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds")


@contextmanager
def keep_recent_logs() -> Iterator[RecentLogs]:
    """Keep the log lines of this process while it serves."""
    recent = RecentLogs()
    add_log_handler(recent)
    try:
        yield recent
    finally:
        logging.getLogger().removeHandler(recent)
