"""EventLog: the numbered events of one run, and its readers. No HTTP."""

from collections.abc import Callable

import anyio
from anyio.lowlevel import checkpoint

from gateway.runtime.events import RunEvent
from gateway.runtime.serialization import dumps

MAX_BYTES = 32 * 1024 * 1024
"""Events kept of one run: 40,000 token frames of 800 bytes."""

COALESCE_S = 0.002
"""A reader is woken at most this often, seconds: a fast model's tokens share a write, and 2 ms is unseen."""

MAX_BATCH = 256
"""Events handed to a reader at once, so that one who comes late does not copy the whole log."""

_OVERHEAD = 120
"""Bytes of an event beside its data: the object, its name, its place in the list."""


class EventLog:
    """Everything a run said, for as many readers as come, from any event on.

    Nothing is dropped before `max_bytes`; beyond it the oldest events go, and a reader who has not had them
    gets an explicit `gap` event and the state instead of a silent hole.

    Args:
        state: Returns the run's values so far as JSON, for readers who missed events.
        max_bytes: Bound of what is kept.
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
        """Say that there will be no more events."""
        self.closed = True
        self._wake()

    def read(self, after: int) -> list[RunEvent]:
        """Return the next events after number `after`; when some are gone, first a gap and the state."""
        start = after + 1 - self._first
        if start >= 0:
            return self._events[start : start + MAX_BATCH]
        lost = {"code": "stream_replay_gap", "after": after, "resumes_at": self._first}
        told = [RunEvent(self._first - 1, "gap", dumps(lost))]
        state = self._state()
        if state is not None:
            told.append(RunEvent(self._first - 1, "values", state))
        return told + self._events[:MAX_BATCH]

    async def wait_for_change(self) -> None:
        """Return once an event was added or the log was closed after this call."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def subscribe(self, after: int = 0, *, coalesce_s: float = COALESCE_S) -> "EventLogReader":
        """Return a reader that starts after event `after` (0 = from the first)."""
        return EventLogReader(self, min(after, self.last_id), coalesce_s)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _drop_oldest(self) -> None:
        """Drop the older half, so that the cost of dropping is spread over many events."""
        dropped = 0
        while dropped < len(self._events) - 1 and self.bytes > self._max_bytes // 2:
            self.bytes -= len(self._events[dropped].data) + _OVERHEAD
            dropped += 1
        del self._events[:dropped]
        self._first += dropped


class EventLogReader:
    """One reader's place in a log."""

    def __init__(self, log: EventLog, after: int, coalesce_s: float) -> None:
        self._log = log
        self._after = after
        self._coalesce_s = coalesce_s
        self._last_wake = 0.0

    async def receive(self) -> list[RunEvent] | None:
        """Wait for the next events and return what there is, at least one; None at the end."""
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
        """Wait out the rest of the coalescing window, unless this is the first event after a pause."""
        now = anyio.current_time()
        since = now - self._last_wake
        if since < self._coalesce_s and not self._log.closed:
            await anyio.sleep(self._coalesce_s - since)
            now = anyio.current_time()
        self._last_wake = now
