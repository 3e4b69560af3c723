"""Events stored as differences: large events that repeat most of an earlier one keep only what changed.

Examples are the state after each step (`values`) and the message so far (`messages/partial`). Without this, the memory
of an answer would grow with the square of its length, and a thread's runs would each hold all of its messages.
"""

import math
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from gateway.runtime.events import RunEvent

MIN_DIFF_BYTES = 1024
"""Smaller events are stored as they are."""

MIN_REBASED_BYTES = 16 * 1024
"""Smaller events of finished runs are not stored as differences from a later run's."""

MAX_KEYS = 16
"""Keys whose last event is known: messages and subgraphs that are streamed at the same time."""

_Value = TypeVar("_Value")


@dataclass(slots=True, eq=False)
class EventDiff:
    """A large event, mostly as a change of the previous event with the same key.

    Attributes:
        base: The event that it changes: the previous one, or a later one (see `rebase`); None = `middle` is the
            whole data.
        start: Bytes of the base that are kept at its start.
        end: Bytes of the base that are kept at its end.
        middle: The bytes between them.
        is_compressed: Whether `middle` is compressed.
    """

    id: int
    name: str
    key: str
    base: "EventDiff | None"
    start: int
    end: int
    middle: bytes
    is_compressed: bool = False


StoredEvent = RunEvent | EventDiff


def stored_size(event: StoredEvent) -> int:
    """Return how many bytes of data an event holds."""
    return len(event.data if isinstance(event, RunEvent) else event.middle)


def decoded_size(event: StoredEvent) -> float:
    """Return how many bytes of data an event stands for; infinity = it is compressed."""
    if isinstance(event, RunEvent):
        return len(event.data)
    return math.inf if event.is_compressed else event.start + len(event.middle) + event.end


class DiffEncoder:
    """Turns a sequence of events into their stored form.

    An event is stored whole again once the differences since the last whole one are as large as it is. So decoding
    from any point is cheap, and the total stays linear.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[EventDiff, bytes, int]] = OrderedDict()

    def encode(self, event: RunEvent, key: str) -> StoredEvent:
        """Return the stored form of an event; `key` names the sequence it belongs to."""
        data = event.data
        if len(data) < MIN_DIFF_BYTES:
            return event
        stored = EventDiff(event.id, event.name, key, None, 0, 0, data)
        changed = 0
        if (known := self._last.get(key)) is not None:
            base, before, changed = known
            start, end = _common_parts(before, data, base)
            changed += len(data) - start - end
            if changed < len(data):
                middle = data[start : len(data) - end]
                stored = EventDiff(event.id, event.name, key, base, start, end, middle)
        _remember(self._last, key, (stored, data, changed if stored.base else 0))
        return stored


class DiffDecoder:
    """Restores events. One decoder for each reader: reading on from the last event is cheap."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[EventDiff, bytearray]] = OrderedDict()

    def decode(self, stored: StoredEvent) -> RunEvent:
        """Return the whole event."""
        if isinstance(stored, RunEvent):
            return stored
        if stored.base is None and not stored.is_compressed:
            return RunEvent(stored.id, stored.name, stored.middle)
        known, data = self._last.get(stored.key, (None, bytearray()))
        steps: list[EventDiff] = []
        step: EventDiff | None = stored
        while step is not None and step is not known:
            steps.append(step)
            step = step.base
        for one in reversed(steps):
            middle = zlib.decompress(one.middle) if one.is_compressed else one.middle
            data[one.start : len(data) - one.end] = middle
        _remember(self._last, stored.key, (stored, data))
        return RunEvent(stored.id, stored.name, bytes(data))


def compress(events: Iterable[StoredEvent], *, max_bytes: float = math.inf) -> None:
    """Compress large whole events of less than `max_bytes` in place. Takes about 1 ms per 100 kB."""
    for event in events:
        if _is_whole(event, MIN_DIFF_BYTES) and len(event.middle) < max_bytes:
            event.middle, event.is_compressed = zlib.compress(event.middle, level=1), True


def rebase(events: Iterable[StoredEvent], later: Iterable[StoredEvent]) -> None:
    """Store large whole events as differences from whole ones of a later run on the same thread, in place.

    The states of a thread repeat each other, so all but the newest take little memory.
    """
    bases = {event.key: event for event in reversed([*later]) if _is_whole(event, MIN_DIFF_BYTES)}
    for event in events:
        if _is_whole(event, MIN_REBASED_BYTES) and (base := bases.get(event.key)):
            start, end = _common_parts(base.middle, event.middle, base)
            if start + end > len(event.middle) // 2:
                event.base, event.start, event.end = base, start, end
                event.middle = event.middle[start : len(event.middle) - end]


def _is_whole(event: StoredEvent, min_bytes: int) -> TypeGuard[EventDiff]:
    return (
        isinstance(event, EventDiff)
        and event.base is None
        and not event.is_compressed
        and len(event.middle) >= min_bytes
    )


def detach(event: EventDiff) -> None:
    """Store a difference as whole data, so that the events before it can be dropped."""
    event.middle, event.is_compressed = DiffDecoder().decode(event).data, False
    event.base, event.start, event.end = None, 0, 0


def _remember(last: OrderedDict[str, _Value], key: str, value: _Value) -> None:
    last[key] = value
    last.move_to_end(key)
    if len(last) > MAX_KEYS:
        last.popitem(last=False)


def _common_parts(before: bytes, after: bytes, base: EventDiff) -> tuple[int, int]:
    """Return how many bytes two events have in common at the start and, after that, at the end.

    A growing text changes where it changed last, so that place is tried first.
    """
    start = end = 0
    if base.base is not None:
        start, end = base.start + len(base.middle), base.end
    limit = min(len(before), len(after))
    if not (start + end <= limit and end and before[:start] == after[:start]):
        start = _common_start(before, after, limit)
    if not (end and start + end <= limit and before[-end:] == after[-end:]):
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
