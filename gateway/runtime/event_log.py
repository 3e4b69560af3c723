"""EventLog: the numbered events of one run, and its readers. No HTTP."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio
import orjson
import zstandard
from anyio.lowlevel import checkpoint

from gateway.runtime.events import RunEvent
from gateway.runtime.serialization import dumps

MAX_BYTES = 8 * 1024 * 1024
"""Size of one run's events in memory: 9,000 token frames of 800 bytes."""

COALESCE_S = 0.002
"""Shortest time between two wake-ups of a reader, seconds, so that tokens of a fast model share a write."""

MAX_BATCH = 256
"""Maximum number of events per read, so that a late reader does not copy the whole log."""

MAX_BATCH_BYTES = 256 * 1024
"""Maximum size of the events of one read. A larger event is read alone."""

MIN_CHANGE_BYTES = 1024
"""The log stores smaller events whole."""

MAX_KEYS = 16
"""Maximum number of keys whose last event the log remembers: messages and subgraphs that stream at the same time."""

_OVERHEAD = 200
"""Size of an event without its data: the object, its numbers, its list slot."""


@dataclass(slots=True, eq=False)
class _Change:
    """A large event, stored as the difference from the previous event with the same key.

    Attributes:
        start: Number of unchanged bytes at the start.
        end: Number of unchanged bytes at the end.
        data: The bytes between them.
    """

    id: int
    name: str
    key: str
    start: int
    end: int
    data: bytes

    def apply(self, before: bytearray) -> None:
        """Return this event's data, given the data of the previous event."""
        before[self.start : len(before) - self.end] = self.data


_StoredEvent = RunEvent | _Change


def _default_max_bytes() -> int:
    return MAX_BYTES


class EventLog:
    """The events of one run, for any number of readers, each starting at any event.

    The log stores a large event (the state after each step, the message so far) as the difference from the previous
    one, so the memory for an answer is linear in its length in every stream mode. Beyond `max_bytes` it drops the
    oldest events. A reader that has not read them gets a `gap` event and the state instead.

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
        self._events: list[_StoredEvent] = []
        self._sealed: bytes | None = None
        self._start = first - 1
        self._first = first
        self._next = first
        self._max_bytes = max_bytes
        self._state = state
        self._final_state: bytes | None = None
        self._newest: dict[str, tuple[bytes, int, int]] = {}
        self._changed: anyio.Event | None = None
        self.bytes = 0
        self.closed = False

    @property
    def start(self) -> int:
        """The number of the first event minus one. The log may have dropped that event."""
        return self._start

    @property
    def first_id(self) -> int:
        """The number of the oldest event in the log."""
        return self._first

    @property
    def last_id(self) -> int:
        """The number of the newest event. Before the first event, its number minus one."""
        return self._next - 1

    def append(self, name: str, data: bytes, key: str | None = None) -> None:
        """Add an event and wake the readers.

        Args:
            name: The event's name.
            data: JSON.
            key: Events with the same key repeat most of each other's data; None = the name is the key.
        """
        event: _StoredEvent
        if len(data) < MIN_CHANGE_BYTES:
            event = RunEvent(self._next, name, data)
            self.bytes += _OVERHEAD + len(data)
        else:
            event = self._change(name, data, key or name)
            self.bytes += _OVERHEAD + len(event.data)
        self._events.append(event)
        self._next += 1
        if self.bytes > self._max_bytes():
            self._drop_oldest()
        self._wake()

    def skip_to(self, first: int) -> None:
        """Drop all events. The next event gets the number `first`. Readers get a gap."""
        self._events.clear()
        self._first = self._next = first
        self._newest.clear()
        self.bytes = 0

    def close(self, state: bytes | None = None) -> None:
        """End the log: no more events follow.

        Args:
            state: The final state, for readers who missed events. None = the data of the last `values` event.
        """
        self.closed = True
        self._state, self._final_state = None, state
        self.bytes += len(state or b"")
        self._newest.clear()
        self._wake()

    def seal(self) -> None:
        """Compress a closed log into one block, in 0.03 ms for a short answer, 1 ms for 4,000 tokens.

        Readers see no difference. Each new reader unpacks it once, which takes up to ten times as long.
        """
        if self._sealed is None:
            self._sealed = _pack(self._events, self._final_state)
            self._events, self._final_state = [], None
            self.bytes = len(self._sealed)

    def final_state(self) -> bytes | None:
        """Return the state after the end: the state that `close` got, or the data of the last `values` event. JSON."""
        events, state = self.stored()
        if state is not None:
            return state
        newest = next((event for event in reversed(events) if event.name == "values"), None)
        if newest is None or isinstance(newest, RunEvent):
            return None if newest is None else newest.data
        data = bytearray()
        for event in events:
            if isinstance(event, _Change) and event.key == newest.key:
                event.apply(data)
        return bytes(data)

    def stored(self) -> tuple[Sequence[_StoredEvent], bytes | None]:
        """Return the events as the log stores them, oldest first, and the state that `close` got."""
        if self._sealed is None:
            return self._events, self._final_state
        return _unpack(self._sealed, self._first)

    def gap(self, after: int) -> list[RunEvent]:
        """Return the replacement for dropped events: a `gap` event and the state."""
        lost = {"code": "stream_replay_gap", "after": after, "resumes_at": self._first}
        events = [RunEvent(self._first - 1, "gap", dumps(lost))]
        state = self._state() if self._state else self.final_state()
        if state is not None:
            events.append(RunEvent(self._first - 1, "values", state))
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

    def _change(self, name: str, data: bytes, key: str) -> _Change:
        if key not in self._newest and len(self._newest) == MAX_KEYS:
            self._newest.clear()
        start, end = _common_parts(*self._newest.get(key, (b"", 0, 0)), data)
        until = len(data) - end
        self._newest[key] = data, until, end
        return _Change(self._next, name, key, start, end, data[start:until])

    def _drop_oldest(self) -> None:
        """Drop the older half, because dropping many events at once is cheap per event."""
        target = self._max_bytes() // 2
        before: dict[str, bytearray] = {}
        dropped = 0
        while dropped < len(self._events) - 1 and self.bytes > target:
            event = self._events[dropped]
            if isinstance(event, _Change):
                event.apply(before.setdefault(event.key, bytearray()))
            self.bytes -= _OVERHEAD + len(event.data)
            dropped += 1
        del self._events[:dropped]
        self._first += dropped
        for event in self._events:
            if isinstance(event, _Change) and event.key in before:
                data = before.pop(event.key)
                event.apply(data)
                self.bytes += len(data) - len(event.data)
                event.start, event.end, event.data = 0, 0, bytes(data)
        for key in before:  # The log has dropped all its events.
            self._newest.pop(key, None)


class EventLogReader:
    """One reader of a log.

    Attributes:
        position: The number of the last event that was read.
    """

    def __init__(self, log: EventLog, after: int, coalesce_s: float) -> None:
        self.position = after
        self._log = log
        self._events: Sequence[_StoredEvent] | None = None
        self._decoded = log.start
        self._data: dict[str, bytearray] = {}
        self._coalesce_s = coalesce_s
        self._last_wake = 0.0

    def read(self) -> list[RunEvent]:
        """Return the available events without waiting. If the log dropped some, a gap and the state come first."""
        events: list[RunEvent] = []
        log = self._log
        if self.position < log.first_id - 1:
            events += log.gap(self.position)
            self.position = log.first_id - 1
        stored = log.stored()[0] if self._events is None else self._events
        if log.closed:
            self._events = stored
        size = 0
        for index in range(max(0, self._decoded + 1 - log.first_id), len(stored)):
            event = self._decode(stored[index])
            if event is None:
                continue
            events.append(event)
            self.position = event.id
            size += len(event.data)
            if len(events) >= MAX_BATCH or size > MAX_BATCH_BYTES:
                break
        return events

    def _decode(self, stored: _StoredEvent) -> RunEvent | None:
        """Return a whole event, or None for one that the reader has already.

        Later events may be differences from it.
        """
        self._decoded = stored.id
        if isinstance(stored, RunEvent):
            return stored if stored.id > self.position else None
        data = self._data.setdefault(stored.key, bytearray())
        stored.apply(data)
        if stored.id <= self.position:
            return None
        return RunEvent(stored.id, stored.name, bytes(data))

    async def receive(self) -> list[RunEvent] | None:
        """Wait for events and return all available ones, at least one. None at the end."""
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


def _pack(events: Iterable[_StoredEvent], state: bytes | None) -> bytes:
    """Return events and the final state as one compressed block."""
    head: list[object] = [None if state is None else len(state)]
    for event in events:
        if isinstance(event, RunEvent):
            head.append((event.name, len(event.data)))
        else:
            head.append((event.name, len(event.data), event.key, event.start, event.end))
    data = b"".join([*(event.data for event in events), state or b""])
    block = zstandard.compress(orjson.dumps(head) + b"\n" + data)
    # A copy, because the object that `compress` returns is as large as its input.
    return bytes(memoryview(block))


def _unpack(block: bytes, first: int) -> tuple[list[_StoredEvent], bytes | None]:
    """Return the events, the first numbered `first`, and the final state."""
    head, _, data = zstandard.decompress(block).partition(b"\n")
    state_size, *described = orjson.loads(head)
    events: list[_StoredEvent] = []
    at = 0
    for number, (name, size, *change) in enumerate(described, first):
        part = data[at : at + size]
        at += size
        if change:
            key, start, end = change
            events.append(_Change(number, name, key, start, end, part))
        else:
            events.append(RunEvent(number, name, part))
    return events, None if state_size is None else data[at:]


def _common_parts(before: bytes, start: int, end: int, after: bytes) -> tuple[int, int]:
    """Return how many bytes two events have in common at the start and, after that, at the end.

    `start` and `end` are tried first, because a growing text changes where it changed last.
    """
    limit = min(len(before), len(after))
    if not end or start + end > limit or before[:start] != after[:start]:
        start = _common_start(before, after, limit)
        end = 0
    if not end or before[-end:] != after[-end:]:
        end = _common_end(before, after, limit - start)
    return start, end


def _common_start(a: bytes, b: bytes, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(a: bytes, b: bytes, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low
