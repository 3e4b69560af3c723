"""MemoryQueue: turns waiting for extraction, debounced per conversation."""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

import anyio

from agent.memory.scope import MemoryScope
from agent.memory.turns import MemoryMessage, MemoryTurn

MAX_MESSAGES = 60
"""The most that one entry holds; older messages go first."""

MAX_DEBOUNCE_FACTOR = 10
"""After so many times the rest that is waited for, a conversation that never rests is learnt from all the same."""

MAX_PROCESSED_IDS = 20_000
"""How many messages are known to be learnt from already."""

FLUSH_CONCURRENCY = 8  # updates side by side while closing; one after another otherwise
GAP_S = 0.5  # between two updates: a background job must not use up a provider's rate

ProcessTurn = Callable[["QueuedTurn"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQueueKey:
    """Whose entry it is."""

    thread_id: str
    scope: MemoryScope


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedTurn:
    """One entry. `first_at` and `last_at` are on the clock of the loop, seconds.

    Attributes:
        turn: What is to be learnt from.
        is_cancelled: Nobody wants it learnt any more; also set while it is being worked on.
    """

    turn: MemoryTurn
    first_at: float
    last_at: float
    is_expedited: bool = False
    is_cancelled: bool = False

    @property
    def key(self) -> MemoryQueueKey:
        """Return whose it is."""
        return MemoryQueueKey(thread_id=self.turn.thread_id, scope=self.turn.scope)


def due_at(work: QueuedTurn, rest_s: float) -> float:
    """Return when an entry is learnt from: when the conversation rested, or has gone on for very long."""
    if work.is_expedited:
        return work.first_at
    return min(work.last_at + rest_s, work.first_at + MAX_DEBOUNCE_FACTOR * rest_s)


def merge_turns(before: MemoryTurn, after: MemoryTurn) -> MemoryTurn:
    """Return both as one: each message once, in its newer form; flags of both; correction goes before praise."""
    said = {one.id: one for one in (*before.messages, *after.messages)}
    corrects = before.is_correction or after.is_correction
    return replace(
        after,
        messages=tuple(said.values())[-MAX_MESSAGES:],
        context=before.context,
        is_correction=corrects,
        is_reinforcement=not corrects and (before.is_reinforcement or after.is_reinforcement),
    )


class MemoryQueue:
    """Holds what waits, and works it off in one loop.

    Args:
        learn: Works off one entry. It logs what fails and raises nothing but cancellation.
        rest_s: How long a conversation must rest, seconds; asked for each time.
        gap_s: Between two entries.
    """

    def __init__(
        self, learn: ProcessTurn, *, rest_s: Callable[[], float], gap_s: float = GAP_S
    ) -> None:
        self._learn = learn
        self._rest_s = rest_s
        self._gap_s = gap_s
        self._waiting: OrderedDict[MemoryQueueKey, QueuedTurn] = OrderedDict()
        self._busy: list[QueuedTurn] = []
        self._learnt: OrderedDict[tuple[MemoryQueueKey, str], None] = OrderedDict()
        self._changed = anyio.Event()
        self._asleep_until = math.inf
        self._is_closing = False

    @property
    def unprocessed(self) -> list[MemoryTurn]:
        """What is not learnt yet, what is being worked on included."""
        works = [*self._busy, *self._waiting.values()]
        return [work.turn for work in works if not work.is_cancelled]

    def add(self, exchange: MemoryTurn) -> None:
        """Put something in; it joins what waits of its conversation, whose rest begins anew.

        Nothing happens when nobody said anything that is not learnt already.
        """
        self._enqueue(exchange, is_hurried=False)

    def add_expedited(self, exchange: MemoryTurn) -> None:
        """Put something in that is to be learnt without waiting for the conversation to rest."""
        self._enqueue(exchange, is_hurried=True)

    def expedite(self, key: MemoryQueueKey) -> None:
        """Let what waits of a conversation be learnt now."""
        work = self._waiting.get(key)
        if work is not None:
            work.is_expedited = True
            self._notify()

    def drop(self, spot: MemoryScope) -> None:
        """Take out what was to be learnt for a document; without an agent for the whole scope."""
        for work in [*self._busy, *self._waiting.values()]:
            if _covers(spot, work.key.scope):
                work.is_cancelled = True
                if self._waiting.get(work.key) is work:
                    del self._waiting[work.key]
        self._notify()

    async def run(self) -> None:
        """Work off what is due, one after another, for ever."""
        while True:
            work = self._next_due()
            if work is None:
                await self._wait_for_work()
                continue
            await self._process(work)
            await anyio.sleep(self._gap_s)

    async def flush(self) -> None:
        """Work off all that is in, without waiting for rest; return when nothing is left.

        Cancelling it gives up: `open` is what is left.
        """
        self._is_closing = True
        self._notify()
        limit = anyio.CapacityLimiter(FLUSH_CONCURRENCY)
        while self._waiting or self._busy:
            changed = self._changed
            async with anyio.create_task_group() as tasks:
                for work in list(self._waiting.values()):
                    self._start(work)
                    tasks.start_soon(self._finish, work, limit)
            if self._busy and not self._waiting:
                await changed.wait()

    def _enqueue(self, exchange: MemoryTurn, *, is_hurried: bool) -> None:
        key = MemoryQueueKey(thread_id=exchange.thread_id, scope=exchange.scope)
        fresh = tuple(one for one in exchange.messages if (key, one.id) not in self._learnt)
        if not any(one.role == "user" for one in fresh):
            return
        now = anyio.current_time()
        exchange = replace(exchange, messages=fresh[-MAX_MESSAGES:])
        before = self._waiting.get(key)
        if before is None:
            before = QueuedTurn(turn=exchange, first_at=now, last_at=now, is_expedited=is_hurried)
            self._waiting[key] = before
        else:
            before.turn = merge_turns(before.turn, exchange)
            before.last_at = now
            before.is_expedited = before.is_expedited or is_hurried
        # Nothing changes for a loop that wakes up earlier anyway, and waking it costs a look at all that waits.
        if due_at(before, self._rest_s()) < self._asleep_until:
            self._notify()

    def _next_due(self) -> QueuedTurn | None:
        if self._is_closing:
            return None
        rest_s, now = self._rest_s(), anyio.current_time()
        ready = (work for work in self._waiting.values() if due_at(work, rest_s) <= now)
        return min(ready, key=lambda work: due_at(work, rest_s), default=None)

    async def _wait_for_work(self) -> None:
        changed = self._changed
        if self._is_closing or not self._waiting:
            await changed.wait()
            return
        rest_s = self._rest_s()
        self._asleep_until = min(due_at(work, rest_s) for work in self._waiting.values())
        with anyio.move_on_after(max(0.0, self._asleep_until - anyio.current_time())):
            await changed.wait()
        self._asleep_until = math.inf

    async def _process(self, work: QueuedTurn) -> None:
        self._start(work)
        await self._finish(work, None)

    def _start(self, work: QueuedTurn) -> None:
        del self._waiting[work.key]
        self._busy.append(work)

    async def _finish(self, work: QueuedTurn, limit: anyio.CapacityLimiter | None) -> None:
        if limit is None:
            await self._learn(work)
        else:
            async with limit:
                await self._learn(work)
        # Not in a `finally`: what is given up while closing must stay in `open`.
        self._busy.remove(work)
        self._record_processed(work.key, work.turn.messages)
        self._notify()

    def _record_processed(self, key: MemoryQueueKey, said: Iterable[MemoryMessage]) -> None:
        for one in said:
            self._learnt[key, one.id] = None
        while len(self._learnt) > MAX_PROCESSED_IDS:
            self._learnt.popitem(last=False)

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _covers(spot: MemoryScope, other: MemoryScope) -> bool:
    return spot.scope == other.scope and spot.agent in (None, other.agent)
