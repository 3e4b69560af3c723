"""EventLog: the numbered events of one run, and its readers. No HTTP."""

from collections.abc import Callable

import anyio
from anyio.lowlevel import checkpoint

from gateway.runtime.events import RunEvent
from gateway.runtime.serialization import dumps

MAX_BYTES = 32 * 1024 * 1024
"""Size of one run's events in memory: 40,000 token frames of 800 bytes."""

COALESCE_S = 0.002
"""Shortest time between two wake-ups of a reader, seconds: tokens of a fast model share a write."""

MAX_BATCH = 256
"""Events per read, so that a late reader does not copy the whole log."""

_OVERHEAD = 120
"""Bytes of an event besides its data: the object, its name, its list slot."""


class EventLog:
    """The events of one run, for any number of readers, each starting at any event.

    Beyond `max_bytes` the oldest events are dropped; a reader that has not read them gets an explicit `gap`
    event and the state instead.

    Args:
        state: Returns the run's values so far as JSON, for readers who missed events.
        max_bytes: Size limit.
        first: The number of the first event.
    """

    def __init__(
        self,
        *,
        state: Callable[[], bytes | None] = lambda: None,
        max_bytes: int = MAX_BYTES,
        first: int = 1,
    ) -> None:
        self._events: list[RunEvent] = []
        self._first = first
        self._next = first
        self._max_bytes = max_bytes
        self._state = state
        self._changed: anyio.Event | None = None
        self.bytes = 0
        self.closed = False

    @property
    def last_id(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._next - 1

    def append(self, name: str, data: bytes) -> None:
        """Add an event and wake the readers."""
        self._events.append(RunEvent(self._next, name, data))
        self._next += 1
        self.bytes += len(data) + _OVERHEAD
        if self.bytes > self._max_bytes:
            self._drop_oldest()
        self._wake()

    def close(self) -> None:
        """End the log: no more events follow."""
        self.closed = True
        self._wake()

    def read(self, after: int) -> list[RunEvent]:
        """Return the next events after number `after`; if some were dropped, first a gap and the state."""
        start = after + 1 - self._first
        if start >= 0:
            return self._events[start : start + MAX_BATCH]
        lost = {"code": "stream_replay_gap", "after": after, "resumes_at": self._first}
        events = [RunEvent(self._first - 1, "gap", dumps(lost))]
        state = self._state()
        if state is not None:
            events.append(RunEvent(self._first - 1, "values", state))
        return events + self._events[:MAX_BATCH]

    async def wait_for_change(self) -> None:
        """Wait until an event is added or the log is closed."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def subscribe(self, after: int = 0, *, coalesce_s: float = COALESCE_S) -> "EventLogReader":
        """Return a reader that starts after event `after` (0 = at the first)."""
        return EventLogReader(self, min(after, self.last_id), coalesce_s)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _drop_oldest(self) -> None:
        """Drop the older half: dropping in bulk is cheap per event."""
        dropped = 0
        while dropped < len(self._events) - 1 and self.bytes > self._max_bytes // 2:
            self.bytes -= len(self._events[dropped].data) + _OVERHEAD
            dropped += 1
        del self._events[:dropped]
        self._first += dropped


class EventLogReader:
    """One reader of a log."""

    def __init__(self, log: EventLog, after: int, coalesce_s: float) -> None:
        self._log = log
        self._after = after
        self._coalesce_s = coalesce_s
        self._last_wake = 0.0

    async def receive(self) -> list[RunEvent] | None:
        """Wait for events and return the available ones, at least one; None at the end."""
        log = self._log
        if log.last_id <= self._after and not log.closed:
            await log.wait_for_change()
            await self._coalesce()
        else:
            await checkpoint()
        events = log.read(self._after)
        if not events:
            return None
        self._after = events[-1].id
        return events

    async def _coalesce(self) -> None:
        """Wait for the rest of the coalescing window, unless this is the first event after a pause."""
        now = anyio.current_time()
        since = now - self._last_wake
        if since < self._coalesce_s and not self._log.closed:
            await anyio.sleep(self._coalesce_s - since)
            now = anyio.current_time()
        self._last_wake = now
