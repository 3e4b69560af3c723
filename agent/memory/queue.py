"""What waits to be learnt: one entry for each conversation, learnt from when the conversation rests."""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

import anyio

from agent.memory.scopes import Spot
from agent.memory.turns import Exchange, Said

MAX_MESSAGES = 60
"""The most that one entry holds; older messages go first."""

LONGEST_WAIT = 10
"""After so many times the rest that is waited for, a conversation that never rests is learnt from all the same."""

MAX_LEARNT = 20_000
"""How many messages are known to be learnt from already."""

AT_ONCE = 8  # updates side by side while closing; one after another otherwise
GAP_S = 0.5  # between two updates: a background job must not use up a provider's rate

Learn = Callable[["Work"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Whose entry it is."""

    thread_id: str
    spot: Spot


@dataclass(slots=True, eq=False, kw_only=True)
class Work:
    """One entry. `first` and `last` are on the clock of the loop, seconds.

    Attributes:
        exchange: What is to be learnt from.
        is_dropped: Nobody wants it learnt any more; also set while it is being worked on.
    """

    exchange: Exchange
    first: float
    last: float
    is_hurried: bool = False
    is_dropped: bool = False

    @property
    def key(self) -> Key:
        """Return whose it is."""
        return Key(thread_id=self.exchange.thread_id, spot=self.exchange.spot)


def due(work: Work, rest_s: float) -> float:
    """Return when an entry is learnt from: when the conversation rested, or has gone on for very long."""
    if work.is_hurried:
        return work.first
    return min(work.last + rest_s, work.first + LONGEST_WAIT * rest_s)


def joined(before: Exchange, after: Exchange) -> Exchange:
    """Return both as one: each message once, in its newer form; flags of both; correction goes before praise."""
    said = {one.id: one for one in (*before.said, *after.said)}
    corrects = before.is_correction or after.is_correction
    return replace(
        after,
        said=tuple(said.values())[-MAX_MESSAGES:],
        earlier=before.earlier,
        is_correction=corrects,
        is_reinforcement=not corrects and (before.is_reinforcement or after.is_reinforcement),
    )


class UpdateQueue:
    """Holds what waits, and works it off in one loop.

    Args:
        learn: Works off one entry. It logs what fails and raises nothing but cancellation.
        rest_s: How long a conversation must rest, seconds; asked for each time.
        gap_s: Between two entries.
    """

    def __init__(self, learn: Learn, *, rest_s: Callable[[], float], gap_s: float = GAP_S) -> None:
        self._learn = learn
        self._rest_s = rest_s
        self._gap_s = gap_s
        self._waiting: OrderedDict[Key, Work] = OrderedDict()
        self._busy: list[Work] = []
        self._learnt: OrderedDict[tuple[Key, str], None] = OrderedDict()
        self._changed = anyio.Event()
        self._asleep_until = math.inf
        self._is_closing = False

    @property
    def open(self) -> list[Exchange]:
        """What is not learnt yet, what is being worked on included."""
        works = [*self._busy, *self._waiting.values()]
        return [work.exchange for work in works if not work.is_dropped]

    def add(self, exchange: Exchange) -> None:
        """Put something in; it joins what waits of its conversation, whose rest begins anew.

        Nothing happens when nobody said anything that is not learnt already.
        """
        self._put(exchange, is_hurried=False)

    def add_nowait(self, exchange: Exchange) -> None:
        """Put something in that is to be learnt without waiting for the conversation to rest."""
        self._put(exchange, is_hurried=True)

    def hurry(self, key: Key) -> None:
        """Let what waits of a conversation be learnt now."""
        work = self._waiting.get(key)
        if work is not None:
            work.is_hurried = True
            self._tell()

    def drop(self, spot: Spot) -> None:
        """Take out what was to be learnt for a document; without an agent for the whole scope."""
        for work in [*self._busy, *self._waiting.values()]:
            if _covers(spot, work.key.spot):
                work.is_dropped = True
                if self._waiting.get(work.key) is work:
                    del self._waiting[work.key]
        self._tell()

    async def run(self) -> None:
        """Work off what is due, one after another, for ever."""
        while True:
            work = self._next_due()
            if work is None:
                await self._until_changed()
                continue
            await self._do(work)
            await anyio.sleep(self._gap_s)

    async def flush(self) -> None:
        """Work off all that is in, without waiting for rest; return when nothing is left.

        Cancelling it gives up: `open` is what is left.
        """
        self._is_closing = True
        self._tell()
        limit = anyio.CapacityLimiter(AT_ONCE)
        while self._waiting or self._busy:
            changed = self._changed
            async with anyio.create_task_group() as tasks:
                for work in list(self._waiting.values()):
                    self._begin(work)
                    tasks.start_soon(self._finish, work, limit)
            if self._busy and not self._waiting:
                await changed.wait()

    def _put(self, exchange: Exchange, *, is_hurried: bool) -> None:
        key = Key(thread_id=exchange.thread_id, spot=exchange.spot)
        fresh = tuple(one for one in exchange.said if (key, one.id) not in self._learnt)
        if not any(one.role == "user" for one in fresh):
            return
        now = anyio.current_time()
        exchange = replace(exchange, said=fresh[-MAX_MESSAGES:])
        before = self._waiting.get(key)
        if before is None:
            before = Work(exchange=exchange, first=now, last=now, is_hurried=is_hurried)
            self._waiting[key] = before
        else:
            before.exchange = joined(before.exchange, exchange)
            before.last = now
            before.is_hurried = before.is_hurried or is_hurried
        # Nothing changes for a loop that wakes up earlier anyway, and waking it costs a look at all that waits.
        if due(before, self._rest_s()) < self._asleep_until:
            self._tell()

    def _next_due(self) -> Work | None:
        if self._is_closing:
            return None
        rest_s, now = self._rest_s(), anyio.current_time()
        ready = (work for work in self._waiting.values() if due(work, rest_s) <= now)
        return min(ready, key=lambda work: due(work, rest_s), default=None)

    async def _until_changed(self) -> None:
        changed = self._changed
        if self._is_closing or not self._waiting:
            await changed.wait()
            return
        rest_s = self._rest_s()
        self._asleep_until = min(due(work, rest_s) for work in self._waiting.values())
        with anyio.move_on_after(max(0.0, self._asleep_until - anyio.current_time())):
            await changed.wait()
        self._asleep_until = math.inf

    async def _do(self, work: Work) -> None:
        self._begin(work)
        await self._finish(work, None)

    def _begin(self, work: Work) -> None:
        del self._waiting[work.key]
        self._busy.append(work)

    async def _finish(self, work: Work, limit: anyio.CapacityLimiter | None) -> None:
        if limit is None:
            await self._learn(work)
        else:
            async with limit:
                await self._learn(work)
        # Not in a `finally`: what is given up while closing must stay in `open`.
        self._busy.remove(work)
        self._note(work.key, work.exchange.said)
        self._tell()

    def _note(self, key: Key, said: Iterable[Said]) -> None:
        for one in said:
            self._learnt[key, one.id] = None
        while len(self._learnt) > MAX_LEARNT:
            self._learnt.popitem(last=False)

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _covers(spot: Spot, other: Spot) -> bool:
    return spot.scope == other.scope and spot.agent in (None, other.agent)
