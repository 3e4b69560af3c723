"""EventLog: the numbered events of one run, and its readers. No HTTP."""

import math
from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint

from gateway.runtime.event_diffs import (
    DiffDecoder,
    DiffEncoder,
    EventDiff,
    StoredEvent,
    compress,
    detach,
    rebase,
    stored_size,
)
from gateway.runtime.events import RunEvent
from gateway.runtime.serialization import dumps

MAX_BYTES = 8 * 1024 * 1024
"""Size of one run's events in memory: 9,000 token frames of 800 bytes."""

COALESCE_S = 0.002
"""Shortest time between two wake-ups of a reader, seconds: tokens of a fast model share a write."""

MAX_BATCH = 256
"""Events per read, so that a late reader does not copy the whole log."""

MAX_BATCH_BYTES = 256 * 1024
"""Size of the events of one read; a larger event is read alone."""

_OVERHEAD = 120
"""Bytes of an event besides its data: the object, its name, its list slot."""


def _default_max_bytes() -> int:
    return MAX_BYTES


class EventLog:
    """The events of one run, for any number of readers, each starting at any event.

    Large events that repeat most of an earlier one are stored as differences, so an answer's memory is linear in
    its length, whatever the stream mode. Beyond `max_bytes` the oldest events are dropped; a reader that has not
    read them gets an explicit `gap` event and the state instead.

    Args:
        state: Returns the run's values so far as JSON, for readers who missed events.
        max_bytes: Returns the size limit, which may change.
        first: The number of the first event.
    """

    def __init__(
        self,
        *,
        state: Callable[[], bytes | None] | None = None,
        max_bytes: Callable[[], int] = _default_max_bytes,
        first: int = 1,
    ) -> None:
        self._events: list[StoredEvent] = []
        self._start = first - 1
        self._first = first
        self._next = first
        self._max_bytes = max_bytes
        self._state = state
        self._final_state: bytes | None = None
        self._encoder: DiffEncoder | None = DiffEncoder()
        self._changed: anyio.Event | None = None
        self.bytes = 0
        self.closed = False

    @classmethod
    def ended(
        cls, events: Sequence[StoredEvent], *, first: int, start: int, state: bytes | None
    ) -> "EventLog":
        """Return a closed log of these events. `first`, `start`: its `first_id` and `start`; `state`: see `close`."""
        log = cls(first=start + 1)
        log._events = [*events]
        log._first = first
        log._next = first + len(events)
        log.close(state)
        log._count_bytes()
        return log

    @property
    def start(self) -> int:
        """One less than the number that the first event had, which may be dropped."""
        return self._start

    @property
    def first_id(self) -> int:
        """The number of the oldest event that is kept."""
        return self._first

    @property
    def stored_events(self) -> Sequence[StoredEvent]:
        """The events as they are stored, oldest first."""
        return self._events

    @property
    def last_id(self) -> int:
        """The number of the newest event; before the first, one less than its."""
        return self._next - 1

    def append(self, name: str, data: bytes, key: str | None = None) -> None:
        """Add an event and wake the readers.

        Args:
            name: The event's name.
            data: JSON.
            key: Events with the same key repeat each other; None = those with the same name.
        """
        if self._encoder is None:
            self._encoder = DiffEncoder()
        event = self._encoder.encode(RunEvent(self._next, name, data), key or name)
        self._events.append(event)
        self._next += 1
        self.bytes += stored_size(event) + _OVERHEAD
        if self.bytes > self._max_bytes():
            self._drop_oldest()
        self._wake()

    def skip_to(self, first: int) -> None:
        """Drop all events; the next one gets the number `first`. Readers get a gap."""
        self._events.clear()
        self._first = self._next = first
        self._encoder = None
        self.bytes = 0

    def close(self, state: bytes | None = None) -> None:
        """End the log: no more events follow.

        Args:
            state: The final state, for readers who missed events; None = that of the last `values` event.
        """
        self.closed = True
        self._state, self._final_state = None, state
        self._encoder = None
        self._max_bytes = _default_max_bytes
        self._wake()

    def compress(self, *, max_bytes: float = math.inf) -> None:
        """Compress the large events of a closed log that have less than `max_bytes`."""
        compress(self._events, max_bytes=max_bytes)
        self._count_bytes()

    def rebase(self, later: "EventLog") -> None:
        """Store the events of a closed log as differences from those of a later run on the same thread."""
        rebase(self._events, later.stored_events)
        self._count_bytes()

    def last_data(self, name: str) -> bytes | None:
        """Return the data of the newest event with this name, or None."""
        found = next((event for event in reversed(self._events) if event.name == name), None)
        return None if found is None else DiffDecoder().decode(found).data

    def read(self, after: int, decoder: DiffDecoder | None = None) -> list[RunEvent]:
        """Return the next events after number `after`; if some were dropped, first a gap and the state.

        Args:
            after: The number of the last event that the reader has.
            decoder: The reader's; it makes reading on cheaper.
        """
        decoder = decoder or DiffDecoder()
        start = after + 1 - self._first
        events: list[RunEvent] = []
        if start < 0:
            start = 0
            lost = {"code": "stream_replay_gap", "after": after, "resumes_at": self._first}
            events.append(RunEvent(self._first - 1, "gap", dumps(lost)))
            state = self._state() if self._state else self._final_state or self.last_data("values")
            if state is not None:
                events.append(RunEvent(self._first - 1, "values", state))
        size = 0
        for stored in self._events[start : start + MAX_BATCH]:
            event = decoder.decode(stored)
            events.append(event)
            size += len(event.data)
            if size > MAX_BATCH_BYTES:
                break
        return events

    async def wait_for_change(self) -> None:
        """Wait until an event is added or the log is closed."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def subscribe(self, after: int = 0, *, coalesce_s: float = COALESCE_S) -> "EventLogReader":
        """Return a reader that starts after event `after` (0 = at the first)."""
        return EventLogReader(self, min(after or self._start, self.last_id), coalesce_s)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _count_bytes(self) -> None:
        self.bytes = sum(map(stored_size, self._events)) + _OVERHEAD * len(self._events)

    def _drop_oldest(self) -> None:
        """Drop the older half: dropping in bulk is cheap per event."""
        target = self._max_bytes() // 2
        dropped = 0
        while dropped < len(self._events) - 1 and self.bytes > target:
            self.bytes -= stored_size(self._events[dropped]) + _OVERHEAD
            dropped += 1
        del self._events[:dropped]
        self._first += dropped
        self._encoder = DiffEncoder()
        for event in self._events:
            if isinstance(event, EventDiff) and event.base and event.base.id < self._first:
                self.bytes -= len(event.middle)
                detach(event)
                self.bytes += len(event.middle)


class EventLogReader:
    """One reader of a log.

    Attributes:
        position: The number of the last event that was read.
    """

    def __init__(self, log: EventLog, after: int, coalesce_s: float) -> None:
        self.position = after
        self._log = log
        self._decoder = DiffDecoder()
        self._coalesce_s = coalesce_s
        self._last_wake = 0.0

    def read(self) -> list[RunEvent]:
        """Return the available events, without waiting."""
        events = self._log.read(self.position, self._decoder)
        if events:
            self.position = events[-1].id
        return events

    async def receive(self) -> list[RunEvent] | None:
        """Wait for events and return the available ones, at least one; None at the end."""
        log = self._log
        if log.last_id <= self.position and not log.closed:
            await log.wait_for_change()
            await self._coalesce()
        else:
            await checkpoint()
        return self.read() or None

    async def _coalesce(self) -> None:
        """Wait for the rest of the coalescing window, unless this is the first event after a pause."""
        now = anyio.current_time()
        since = now - self._last_wake
        if since < self._coalesce_s and not self._log.closed:
            await anyio.sleep(self._coalesce_s - since)
            now = anyio.current_time()
        self._last_wake = now
