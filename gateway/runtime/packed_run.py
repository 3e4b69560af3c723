"""PackedRun: a run that ended, in one compressed block of bytes."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import orjson

from gateway.runtime.event_diffs import (
    MIN_REBASED_BYTES,
    DiffDecoder,
    EventDiff,
    StoredEvent,
    compress,
    decoded_size,
    rebase,
    stored_size,
)
from gateway.runtime.event_log import EventLog
from gateway.runtime.events import RunEvent
from gateway.runtime.live_run import LiveRun
from store.runs import Run

MAX_PACKED_BYTES = 128 * 1024
"""Runs with more data are not packed: that, and unpacking them, would take milliseconds. There are few at a time."""

_OVERHEAD = 200
"""Bytes of a packed run besides its block."""

_NONE: Mapping[int, EventDiff] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PackedRun:
    """A run that ended, its events and its result. As objects, those of a short answer take five times as much.

    Attributes:
        thread_id: Its thread's id.
        block: Everything but its large events, compressed.
        large: Its large events, by position: those of other runs are stored as differences from them.
    """

    thread_id: str
    block: bytes
    large: Mapping[int, EventDiff]

    @property
    def stored_bytes(self) -> int:
        """Its size in memory."""
        return _OVERHEAD + len(self.block) + sum(map(stored_size, self.large.values()))

    @property
    def large_events(self) -> Collection[StoredEvent]:
        """Its large events."""
        return self.large.values()

    def rebase(self, later: LiveRun) -> None:
        """Store large events as differences from those of a later run on the same thread."""
        rebase(self.large_events, later.log.stored_events)

    def compress(self) -> None:
        """Compress large events."""
        compress(self.large_events)

    def unpack(self) -> LiveRun:
        """Return the run as it was, but without the request of one that is in the database as well."""
        head, _, data = zlib.decompress(self.block).partition(b"\n")
        known = orjson.loads(head)
        events: list[StoredEvent] = []
        start = 0
        for position, (name, size) in enumerate(known["events"]):
            event = RunEvent(known["first"] + position, name, data[start : start + size])
            events.append(self.large.get(position) or event)
            start += size
        result = data[start:] if known["has_result"] else None
        return LiveRun.ended(
            Run(**known["row"]),
            EventLog.ended(events, first=known["first"], start=known["start"], state=result),
            graph_id=known["graph_id"],
            temporary=known["temporary"],
            attempt=known["attempt"],
            result=result,
        )


def pack_run(live: LiveRun) -> PackedRun | None:
    """Pack a run that ended; None = it has too much data. Takes some 60 us for a short answer, at most 2 ms."""
    decoder = DiffDecoder()
    stored = live.log.stored_events
    large = {
        position: event
        for position, event in enumerate(stored)
        if isinstance(event, EventDiff) and decoded_size(event) >= MIN_REBASED_BYTES
    }
    result = live.own_result
    small = [
        0 if position in large else decoded_size(event) for position, event in enumerate(stored)
    ]
    if sum(small) + len(result or b"") > MAX_PACKED_BYTES:
        return None
    data = [
        b"" if position in large else decoder.decode(event).data
        for position, event in enumerate(stored)
    ]
    head = {
        "row": live.lean_row,
        "graph_id": live.graph_id,
        "temporary": live.temporary,
        "attempt": live.attempt,
        "first": live.log.first_id,
        "start": live.log.start,
        "events": [(event.name, len(one)) for event, one in zip(stored, data, strict=True)],
        "has_result": result is not None,
    }
    block = b"\n".join((orjson.dumps(head), b"".join((*data, result or b""))))
    return PackedRun(live.thread_id, zlib.compress(block, level=1), large or _NONE)
