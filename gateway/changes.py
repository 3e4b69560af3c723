"""The change feed for open pages: changed topics, collected for half a second and numbered for resuming."""

import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Literal

import anyio
from typing_extensions import override

from bus.tracing import MessageTracer
from store.inbox import InboxRow
from store.outbox import OutboxRow
from store.signals import Signals

Topic = Literal["messages", "deliveries", "access", "channels", "takeovers", "people"]
"""What changed: messages and their turns, deliveries, access to the bot, connections, takeovers of conversations, or
the memory and settings of people and rooms."""

SIGNAL = "changes"

COLLECT_S = 0.5
"""How long to collect changes before sending them to pages, seconds."""

KEPT = 400
"""Number of past events from which a reader can resume: at least three minutes."""

WATCH_S = 2.0
"""Interval between comparisons of the channels' states, seconds."""


class ChangeFeed:
    """Collects this process's changes, and passes the changes of all of the service's processes to readers.

    It sends at most two events a second, however many messages there are. Events carry no data. Pages request the data
    with their own rights.

    Args:
        signals: Reaches the other processes.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._noted: set[str] = set()
        self._has_noted = anyio.Event()
        self._boot = secrets.token_hex(4)
        self._last = 0
        self._events: deque[tuple[int, frozenset[str]]] = deque(maxlen=KEPT)
        self._arrived = anyio.Event()

    def note(self, topic: Topic) -> None:
        """Note that something changed. Cheap."""
        self._noted.add(topic)
        if not self._has_noted.is_set():
            self._has_noted.set()

    async def run(self, channel_states: Callable[[], Mapping[str, str]]) -> None:
        """Pass on changes until canceled. `channel_states` returns the current state of each channel."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._publish)
            tasks.start_soon(self._watch_channels, channel_states)
            with self._signals.subscribe(SIGNAL) as payloads:
                async for payload in payloads:
                    self._add(frozenset(json.loads(payload)) if payload else frozenset())
            tasks.cancel_scope.cancel()

    async def read(self, last_event_id: str) -> AsyncGenerator[bytes]:
        """Yield the frames after an event, without end; "" = only new events.

        If the event is no longer known, the first frame is `reset`, because everything may have changed.
        """
        boot, _, number = last_event_id.partition("-")
        is_ours = boot == self._boot and number.isascii() and number.isdigit()
        seen = int(number[:15]) if is_ours else -1
        oldest = self._events[0][0] if self._events else self._last + 1
        if last_event_id and not oldest - 1 <= seen <= self._last:
            yield self._frame("reset", frozenset())
        if not oldest - 1 <= seen <= self._last:
            seen = self._last
        yield b"id: %s-%d\nretry: 2000\n\n" % (self._boot.encode(), seen)
        while True:
            arrived = self._arrived
            missed = [topics for event, topics in self._events if event > seen]
            if missed:
                seen = self._last
                is_known = all(
                    missed
                )  # Empty topics mean that signals of other processes may have been lost.
                topics = frozenset().union(*missed)
                yield self._frame("change" if is_known else "reset", topics)
            await arrived.wait()

    async def _publish(self) -> None:
        while True:
            await self._has_noted.wait()
            await anyio.sleep(COLLECT_S)
            noted, self._noted, self._has_noted = self._noted, set(), anyio.Event()
            self._signals.publish(SIGNAL, json.dumps(sorted(noted)))

    async def _watch_channels(self, channel_states: Callable[[], Mapping[str, str]]) -> None:
        known = channel_states()
        while True:
            await anyio.sleep(WATCH_S)
            if (states := channel_states()) != known:
                known = states
                self.note("channels")

    def _add(self, topics: frozenset[str]) -> None:
        self._last += 1
        self._events.append((self._last, topics))
        self._arrived.set()
        self._arrived = anyio.Event()

    def _frame(self, event: str, topics: frozenset[str]) -> bytes:
        data = json.dumps({"topics": sorted(topics)})
        return f"event: {event}\ndata: {data}\nid: {self._boot}-{self._last}\n\n".encode()


class ChangeTracer(MessageTracer):
    """Notes the progress of messages, and passes it to another tracer."""

    def __init__(self, changes: ChangeFeed, inner: MessageTracer) -> None:
        self._changes = changes
        self._inner = inner

    @override
    def record_intake(self, row: InboxRow, *, started_at: float, ended_at: float) -> None:
        self._changes.note("messages")
        self._inner.record_intake(row, started_at=started_at, ended_at=ended_at)

    @override
    def record_wait(self, row: InboxRow, *, ended_at: float) -> None:
        self._changes.note("messages")
        self._inner.record_wait(row, ended_at=ended_at)

    @override
    def record_end(
        self, row: InboxRow, *, outcome: str, ended_at: float, answered_by: InboxRow | None = None
    ) -> None:
        self._changes.note("messages")
        self._inner.record_end(row, outcome=outcome, ended_at=ended_at, answered_by=answered_by)

    @override
    def record_delivery(
        self, row: OutboxRow, *, started_at: float, ended_at: float, error: str = ""
    ) -> None:
        self._changes.note("deliveries")
        self._inner.record_delivery(row, started_at=started_at, ended_at=ended_at, error=error)

    @override
    def record_refusals(self) -> None:
        self._changes.note("messages")
        self._changes.note("access")  # A refused message may ask for approval.

    @override
    def record_index(self) -> None:
        self._changes.note("messages")

    @override
    def record_takeover(self) -> None:
        self._changes.note("takeovers")
        self._changes.note("messages")
        self._inner.record_takeover()

    @override
    def traceparent(self, row: InboxRow) -> str:
        return self._inner.traceparent(row)
