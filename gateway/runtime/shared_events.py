"""EventWriter: writes events of this node's runs to the run_event table while other nodes read them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from gateway.runtime.event_log import EventLogReader
from gateway.runtime.events import RunEvent
from gateway.runtime.local_run import LocalRun
from store.errors import StoreUnavailable
from store.node_calls import NodeCalls
from store.run_events import EventRow, RunEventStore

FLUSH_S = 0.02
"""How often new events of runs with readers at other nodes are written, seconds."""

READ_S = 10.0
"""How long a node counts as a reader after it last reported that it reads a run, seconds."""

RETRY_S = 0.5
"""Pause after the database could not be used, seconds."""

WROTE = "runs.wrote"
"""The signal that tells a reading node which event of a run was written last.

If it is lost, the node finds out later.
"""


@dataclass(slots=True, eq=False)
class _WrittenRun:
    """A run whose events are written.

    Attributes:
        reader: Reads its log, from the first event on.
        readers: The nodes that read it, with the time until which each counts as a reader.
        rows: The rows that could not be written yet.
        is_whole: Whether the last event was written.
    """

    live: LocalRun
    reader: EventLogReader
    readers: dict[int, float] = field(default_factory=dict)
    rows: list[EventRow] = field(default_factory=list)
    is_whole: bool = False

    def is_read(self, now: float) -> bool:
        return any(until > now for until in self.readers.values())

    def is_behind(self) -> bool:
        return self.reader.position < self.live.log.last_id or bool(self.rows)

    def read(self) -> Sequence[EventRow]:
        """Return the rows to write."""
        log = self.live.log
        while self.reader.position < log.last_id and (events := self.reader.read()):
            if kept := _without_gap(events):
                self.rows.append(_row(self.live.run_id, kept))
        if log.closed and self.rows:
            self.rows[-1] = replace(self.rows[-1], result=self.live.own_result)
        return self.rows

    def mark_written(self) -> None:
        self.rows.clear()
        log = self.live.log
        self.is_whole = log.closed and self.reader.position >= log.last_id


class EventWriter:
    """Writes the events of this node's runs that other nodes read, starting with the first event.

    Most runs are not read at other nodes, so their events stay in memory only.

    Args:
        store: The table.
        calls: Tells other nodes which events were written.
        is_kept: Returns whether the events of a run are in memory.
    """

    def __init__(
        self, store: RunEventStore, calls: NodeCalls, is_kept: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._calls = calls
        self._is_kept = is_kept
        self._written: dict[tuple[str, int], _WrittenRun] = {}
        self._asked = anyio.Event()
        self._lock = anyio.Lock()

    def add_reader(self, live: LocalRun, node: int, *, after: int = 0) -> None:
        """Record that a node is reading a run.

        Args:
            live: The run.
            node: The node.
            after: The number of the last event that it has. If all events were written but the node does not have them,
                they are written again, because they may have been deleted.
        """
        written = self._written.get(live.attempt_id)
        if written is None:
            written = self._written[live.attempt_id] = _WrittenRun(live, live.log.subscribe())
        elif written.is_whole and after < live.log.last_id:
            written.reader = live.log.subscribe(after)
            written.is_whole = False
        written.readers[node] = anyio.current_time() + READ_S
        self._asked.set()

    async def flush(self) -> None:
        """Write all new events. Raises StoreUnavailable."""
        async with self._lock:
            now = anyio.current_time()
            due = [one for one in self._written.values() if one.is_read(now) and one.is_behind()]
            rows = [row for one in due for row in one.read()]
            if not rows:
                return
            told = {one: one.rows[-1].last_id for one in due if one.rows}
            await self._store.append(rows)
            for one, last_id in told.items():
                one.mark_written()
                for node, until in one.readers.items():
                    if until > now and node in self._calls.others:
                        self._calls.tell(node, WROTE, f"{one.live.run_id} {last_id}")

    async def run(self) -> None:
        """Write the events of runs with readers, until canceled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            while self._is_read():
                due_at = anyio.current_time() + FLUSH_S
                try:
                    await self.flush()
                except StoreUnavailable:
                    due_at += RETRY_S
                await anyio.sleep_until(due_at)

    def _is_read(self) -> bool:
        now = anyio.current_time()
        return any(one.is_read(now) and not one.is_whole for one in self._written.values())

    def forget_old(self) -> None:
        """Forget the written events of runs that are no longer in memory."""
        for name, written in list(self._written.items()):
            if not self._is_kept(written.live.run_id):
                del self._written[name]


def _without_gap(events: Sequence[RunEvent]) -> Sequence[RunEvent]:
    """Return the events without gap notices and the states after them. Their numbers show which these are."""
    if events[0].name != "gap":
        return events
    return [event for event in events if event.id > events[0].id]


def _row(run_id: str, events: Sequence[RunEvent]) -> EventRow:
    body = b"\n".join(part for event in events for part in (event.name.encode(), event.data))
    return EventRow(run_id=run_id, first_id=events[0].id, last_id=events[-1].id, body=body)


def events_of(row: EventRow) -> Iterable[tuple[str, bytes]]:
    """Return the names and data of a row's events. Neither contains a line break."""
    lines = row.body.split(b"\n")
    return ((name.decode(), data) for name, data in zip(lines[::2], lines[1::2], strict=True))
