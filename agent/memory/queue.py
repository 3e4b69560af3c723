"""MemoryQueue: turns waiting for extraction, debounced per conversation, and paced per document."""

import heapq
import json
import math
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import anyio

from agent.memory.scope import MemoryScope
from agent.memory.turn_json import encode_turns, parse_turns
from agent.memory.turns import MemoryMessage, MemoryTurn

MAX_MESSAGES = 60
"""Maximum messages per entry. A full entry is processed without waiting for a pause, and drops older messages."""

MAX_TURNS_PER_CALL = 8
"""Maximum number of conversations of one document to process together."""

MAX_PACED = 10_000
"""Maximum number of documents for which to remember the latest call."""

MAX_DEBOUNCE_FACTOR = 10
"""A conversation that never pauses is processed after this many debounce periods."""

MAX_PROCESSED = 5_000
"""Number of processed messages to remember, as hashes of 150 bytes each."""

FLUSH_CONCURRENCY = 8  # concurrent updates while closing; otherwise updates run one after another
GAP_S = 0.5  # pause between two updates, so that a background job does not use up a provider's rate limit

LATE_S = 10.0
"""An entry this late is processed without a pause, concurrently with late entries of other documents."""

LATE_CONCURRENCY = 8
"""Maximum number of late entries to process concurrently, each for a different document."""

ProcessTurns = Callable[[Sequence["QueuedTurn"]], Awaitable[bool]]
"""Processes entries of one document. Returns whether a model was called."""

OnProcessed = Callable[["MemoryQueueKey"], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQueueKey:
    """Identifies a conversation's entry."""

    thread_id: str
    scope: MemoryScope


class QueuedTurn:
    """One entry. `first_at` and `last_at` are event loop times, seconds.

    Texts are stored compressed, because thousands of entries may wait for minutes.

    Attributes:
        key: The entry's key.
        message_count: The number of its messages.
        is_cancelled: Whether the entry must no longer change the document. It can be set during processing.
    """

    __slots__ = (
        "_compressed",
        "first_at",
        "is_cancelled",
        "is_expedited",
        "key",
        "last_at",
        "message_count",
    )

    def __init__(self, *, turn: MemoryTurn, first_at: float, last_at: float) -> None:
        self.key = MemoryQueueKey(thread_id=turn.thread_id, scope=turn.scope)
        self.first_at = first_at
        self.last_at = last_at
        self.is_expedited = self.is_cancelled = False
        self.turn = turn

    @property
    def turn(self) -> MemoryTurn:
        """The turn, or several joined turns. Each access decodes it again."""
        (turn,) = parse_turns(json.loads(zlib.decompress(self._compressed)))
        return turn

    @turn.setter
    def turn(self, turn: MemoryTurn) -> None:
        self.message_count = len(turn.messages)
        self._compressed = zlib.compress(encode_turns([turn]), level=1)


def due_at(entry: QueuedTurn, rest_s: float) -> float:
    """Return when to process an entry: after a pause in the conversation, or when the maximum wait is over."""
    if entry.is_expedited:
        return entry.first_at
    return min(entry.last_at + rest_s, entry.first_at + MAX_DEBOUNCE_FACTOR * rest_s)


def merge_turns(before: MemoryTurn, after: MemoryTurn) -> MemoryTurn:
    """Join two turns. Each message appears once, in its newer form. A correction overrides praise."""
    messages = {one.id: one for one in (*before.messages, *after.messages)}
    corrects = before.is_correction or after.is_correction
    return replace(
        after,
        said_at=after.said_at or before.said_at,
        messages=tuple(messages.values())[-MAX_MESSAGES:],
        context=before.context,
        is_correction=corrects,
        is_reinforcement=not corrects and (before.is_reinforcement or after.is_reinforcement),
    )


class MemoryQueue:
    """Holds waiting turns and processes them in one loop.

    Args:
        process: Processes entries of one document. It logs failures and raises only on cancellation.
        on_processed: Called after an entry was processed.
        rest_s: Returns the debounce period, seconds.
        spacing_s: Returns the minimum time between two calls for one document, seconds.
        gap_s: Pause between two calls, seconds.
        late_s: An entry that is overdue by this long is processed concurrently with other late ones, seconds.
    """

    def __init__(
        self,
        process: ProcessTurns,
        on_processed: OnProcessed,
        *,
        rest_s: Callable[[], float],
        spacing_s: Callable[[], float] = lambda: 0.0,
        gap_s: float = GAP_S,
        late_s: float = LATE_S,
    ) -> None:
        self._process_turns = process
        self._spacing_s = spacing_s
        self._called_at: OrderedDict[MemoryScope, float] = OrderedDict()
        self._on_processed = on_processed
        self._rest_s = rest_s
        self._gap_s = gap_s
        self._late_s = late_s
        self._waiting: OrderedDict[MemoryQueueKey, QueuedTurn] = OrderedDict()
        self._busy: list[QueuedTurn] = []
        self._processed: OrderedDict[int, None] = OrderedDict()
        self._changed = anyio.Event()
        self._asleep_until = math.inf
        self._is_closing = False

    def unprocessed_of(self, key: MemoryQueueKey) -> list[MemoryTurn]:
        """Return a conversation's turns that are not processed yet."""
        entries = [*self._busy, *([self._waiting[key]] if key in self._waiting else ())]
        return [entry.turn for entry in entries if entry.key == key and not entry.is_cancelled]

    def add(self, turn: MemoryTurn) -> MemoryQueueKey:
        """Add a turn, and return its key.

        The turn is joined with the conversation's waiting turns, and the debounce period starts again. Does nothing if
        all user messages of the turn were processed before.
        """
        key = MemoryQueueKey(thread_id=turn.thread_id, scope=turn.scope)
        fresh = tuple(one for one in turn.messages if hash((key, one.id)) not in self._processed)
        if not any(one.role == "user" for one in fresh):
            return key
        now = anyio.current_time()
        turn = replace(turn, messages=fresh[-MAX_MESSAGES:])
        queued = self._waiting.get(key)
        if queued is None:
            queued = self._waiting[key] = QueuedTurn(turn=turn, first_at=now, last_at=now)
        else:
            queued.turn = merge_turns(queued.turn, turn)
            queued.last_at = now
        if queued.message_count >= MAX_MESSAGES:
            queued.is_expedited = True
        # Do not notify a loop that wakes up earlier anyway: each notification makes it scan all entries.
        if self._due_at(queued, self._rest_s()) < self._asleep_until:
            self._notify()
        return key

    def expedite(self, key: MemoryQueueKey) -> None:
        """Process a conversation's waiting turns now."""
        entry = self._waiting.get(key)
        if entry is not None:
            entry.is_expedited = True
            self._notify()

    def drop(self, scope: MemoryScope) -> set[MemoryQueueKey]:
        """Cancel all entries for a document and return their keys. Without an agent, cancel the whole scope."""
        dropped: set[MemoryQueueKey] = set()
        for entry in [*self._busy, *self._waiting.values()]:
            if scope.covers(entry.key.scope):
                dropped.add(entry.key)
                entry.is_cancelled = True
                if self._waiting.get(entry.key) is entry:
                    del self._waiting[entry.key]
        self._notify()
        return dropped

    async def run(self) -> None:
        """Process due documents forever, one after another, or several at once if they are late."""
        while True:
            documents, is_late = self._next_due()
            if not documents:
                await self._wait_for_work()
                continue
            async with anyio.create_task_group() as tasks:
                for entries in documents:
                    self._start(entries)
                    tasks.start_soon(self._finish, entries, None)
            if not is_late:
                await anyio.sleep(self._gap_s)

    async def flush(self) -> None:
        """Process all entries without waiting for pauses.

        If canceled, `unprocessed` holds the remaining turns.
        """
        self._is_closing = True
        self._notify()
        limit = anyio.CapacityLimiter(FLUSH_CONCURRENCY)
        while self._waiting or self._busy:
            changed = self._changed
            async with anyio.create_task_group() as tasks:
                for entries in self._by_scope().values():
                    for start in range(0, len(entries), MAX_TURNS_PER_CALL):
                        batch = entries[start : start + MAX_TURNS_PER_CALL]
                        self._start(batch)
                        tasks.start_soon(self._finish, batch, limit)
            if self._busy and not self._waiting:
                await changed.wait()

    def _by_scope(self) -> dict[MemoryScope, list[QueuedTurn]]:
        found: dict[MemoryScope, list[QueuedTurn]] = {}
        for entry in self._waiting.values():
            found.setdefault(entry.key.scope, []).append(entry)
        return found

    def _due_at(self, entry: QueuedTurn, rest_s: float) -> float:
        """Return when to process an entry. Keeps a minimum time after its document's latest call."""
        called_at = self._called_at.get(entry.key.scope, -math.inf)
        return max(due_at(entry, rest_s), called_at + self._spacing_s())

    def _next_due(self) -> tuple[list[list[QueuedTurn]], bool]:
        """Return the waiting entries of the next document, or of several late ones, and whether they are late."""
        if self._is_closing:
            return [], False
        rest_s, now = self._rest_s(), anyio.current_time()
        by_scope = self._by_scope()
        ready = (
            (due, number, scope)
            for number, (scope, entries) in enumerate(by_scope.items())
            if (due := min(self._due_at(entry, rest_s) for entry in entries)) <= now
        )
        first = heapq.nsmallest(LATE_CONCURRENCY, ready)
        late = [scope for due, _, scope in first if now - due >= self._late_s]
        scopes = late or [scope for _, _, scope in first[:1]]
        return [by_scope[scope][:MAX_TURNS_PER_CALL] for scope in scopes], bool(late)

    async def _wait_for_work(self) -> None:
        changed = self._changed
        if self._is_closing or not self._waiting:
            await changed.wait()
            return
        rest_s = self._rest_s()
        self._asleep_until = min(self._due_at(entry, rest_s) for entry in self._waiting.values())
        with anyio.move_on_after(max(0.0, self._asleep_until - anyio.current_time())):
            await changed.wait()
        self._asleep_until = math.inf

    def _start(self, entries: Sequence[QueuedTurn]) -> None:
        for entry in entries:
            del self._waiting[entry.key]
            self._busy.append(entry)

    async def _finish(
        self, entries: Sequence[QueuedTurn], limit: anyio.CapacityLimiter | None
    ) -> None:
        if limit is None:
            is_called = await self._process_turns(entries)
        else:
            async with limit:
                is_called = await self._process_turns(entries)
        if is_called:
            self._record_call(entries[0].key.scope)
        # Not in a `finally`: entries interrupted by shutdown must stay in `unprocessed_of`.
        for entry in entries:
            self._busy.remove(entry)
            self._record_processed(entry.key, entry.turn.messages)
        for entry in entries:
            await self._on_processed(entry.key)
        self._notify()

    def _record_call(self, scope: MemoryScope) -> None:
        self._called_at.pop(scope, None)
        self._called_at[scope] = anyio.current_time()
        if len(self._called_at) > MAX_PACED:
            self._called_at.popitem(last=False)

    def _record_processed(self, key: MemoryQueueKey, messages: Iterable[MemoryMessage]) -> None:
        for one in messages:
            self._processed[hash((key, one.id))] = None
        while len(self._processed) > MAX_PROCESSED:
            self._processed.popitem(last=False)

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
