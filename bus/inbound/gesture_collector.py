"""Stage: merges the messages that a person sent as one gesture (`gestures.py` decides which ones).

The commit stage stores each part as a separate message, so each is acknowledged at once and a crash loses none. The
dispatcher passes accepted messages to the collector, which holds a message that further parts may follow. The collector
joins a part to the row of the first part: that row then contains both, and the part's own row is finished without an
answer. If the turn has begun, it runs again, as after an edit, unless people have seen words of the answer.

In a group, often only one part addresses the bot. As a stage of the pipeline, the collector marks the parts that follow
this part as addressed. It keeps earlier parts in memory and sends them through the pipeline afterward.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
from typing_extensions import override

from bus.bounded import BoundedDict
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.errors import is_repeatable
from bus.inbound.gestures import (
    MAX_GAP_S,
    fits,
    is_incomplete,
    may_be_part,
    part_of,
    with_parts,
)
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import (
    InboundMessage,
    MessagePart,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition
from bus.retry import StoreRetry
from bus.runs.questions import decode_question
from store.inbox import InboxRow

log = logging.getLogger(__name__)

QUIET_S = 1.0
"""A gesture is complete if nothing more arrives for this long, seconds. Its messages usually arrive within 0.1 s."""

RESUMED_QUIET_S = 3.0
"""The same after a restart, because the channel is not connected yet, seconds."""

MAX_WAIT_S = 5.0
"""Maximum wait for the rest of a gesture, seconds."""

FOLLOW_S = 2.0
"""How long after its last part a gesture that is being answered can get another part, seconds."""

UNADDRESSED_S = 10.0
"""How long to keep a part without a mention for a later part that has one, seconds."""

LATE_PART_S = 120.0
"""How long to recognize a late file of an album, seconds."""

MAX_KEPT = 1000
"""Maximum number of people with unaddressed parts, and of albums whose late files are recognized."""

_Person = tuple[str, str, str, str, str]
"""Channel, workspace, chat, topic or thread, and the ID of a person."""


@dataclass(slots=True, eq=False)
class _Gesture:
    """The last gesture of a person: the row that will be answered, and its parts.

    Attributes:
        parts: All parts, including those in `joining`.
        until: When the time for further parts ends, by anyio's clock. `at_most`: its upper bound.
        waits: Whether it is waiting for further parts.
        expected: Number of parts that arrived before the mention and are being accepted.
        joining: Accepted parts that are not in its row yet; `is_joining`: a task joins them.
        is_queued: Whether it is in its conversation's queue.
    """

    row: InboxRow
    message: InboundMessage
    former_thread: str | None = None
    parts: list[MessagePart] = field(default_factory=list)
    until: float = 0.0
    at_most: float = 0.0
    waits: bool = False
    expected: int = 0
    joining: list[tuple[InboxRow, InboundMessage]] = field(default_factory=list)
    is_joining: bool = False
    is_queued: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it can be queued now."""
        return not (self.waits or self.expected or self.is_joining)


class GestureCollector(Stage):
    """Holds messages that may have further parts until they are complete, and joins the parts.

    Args:
        conversations: Take complete messages.
        changes: Serializes changes to stored messages, because each is based on the previous one.
    """

    def __init__(
        self, bus: BusContext, conversations: Conversations, *, changes: anyio.Lock
    ) -> None:
        self._tasks = bus.tasks
        self._history = bus.stores.history
        self._tracer = bus.tracer
        self._conversations = conversations
        self._now = bus.now
        self._changes = changes
        self._store = StoreRetry("gestures")
        self._receive: Callable[[InboundMessage], Awaitable[Disposition]] | None = None
        # The last gesture of each person, oldest first.
        self._open: dict[_Person, _Gesture] = {}
        # By conversation: a gesture that waits, and the messages after it.
        self._lines: dict[int, deque[_Gesture]] = {}
        self._joining: set[_Gesture] = set()
        self._row_ids: set[int] = set()
        self._unaddressed = BoundedDict[_Person, list[tuple[float, InboundMessage]]](MAX_KEPT)
        self._albums = BoundedDict[tuple[_Person, str], tuple[float, InboxRow]](MAX_KEPT)

    def accept_with(self, receive: Callable[[InboundMessage], Awaitable[Disposition]]) -> None:
        """Set the pipeline's `receive`, which accepts the kept parts."""
        self._receive = receive

    @override
    async def __call__(self, context: InboundContext) -> None:
        if context.message.is_bare_mention:
            self._point_at_kept(context)
        message = context.message
        if context.command is not None or not may_be_part(message):
            return
        person = _person(message)
        gesture = self._open.get(person)
        if gesture is not None and self._is_continued(gesture, message, context.received_at):
            context.joins = True
            context.message = replace(message, key=gesture.row.key, is_addressed=True)
        elif (row := self._row_of_album(person, message)) is not None:
            # It came too late for its album, so it is a separate message in the same conversation.
            context.message = replace(message, key=row.key, is_addressed=True)
        elif message.is_addressed:
            return
        elif is_incomplete(message):
            self._keep(person, message, context.received_at)
        else:
            # A message to other people separates the next message from earlier parts.
            self._unaddressed.pop(person, None)
            self._close(person)

    @property
    def row_ids(self) -> frozenset[int]:
        """The ids of the rows that wait here."""
        return frozenset(self._row_ids)

    @property
    def joining_count(self) -> int:
        """Number of accepted messages that are about to be joined to others."""
        return sum(len(gesture.joining) for gesture in self._joining)

    def dispatch(
        self, row: InboxRow, message: InboundMessage, *, former_thread: str | None = None
    ) -> None:
        """Join an accepted message to the one it continues, hold it, or queue it in its conversation.

        Returns at once.
        """
        now = anyio.current_time()
        self._forget_old(now)
        if former_thread is not None or not may_be_part(message):
            self._close(_person(message))
            self._line_up(_Gesture(row, message, former_thread))
            return
        person = _person(message)
        gesture = self._open.get(person)
        if gesture is not None and gesture.row.id != row.id:
            if self._is_continued(gesture, message, row.received_at):
                self._add(person, gesture, row, message)
                return
            self._close(person)
        self._begin(person, row, message, now)

    def close(self, message: InboundMessage) -> None:
        """End the gesture of a person who sent a command."""
        person = _person(message)
        self._unaddressed.pop(person, None)
        self._close(person)

    def change(self, row_id: int, message: InboundMessage) -> None:
        """Replace a waiting message by its edited version."""
        waiting = [gesture for line in self._lines.values() for gesture in line]
        for gesture in {*waiting, *self._joining}:
            if gesture.row.id == row_id:
                gesture.message = message
            gesture.joining = [
                (row, message if row.id == row_id else one) for row, one in gesture.joining
            ]

    def _is_continued(self, gesture: _Gesture, message: InboundMessage, came_at: float) -> bool:
        gap_s = MAX_GAP_S + (UNADDRESSED_S if gesture.expected else 0.0)
        return (
            fits(gesture.message, gesture.parts, message, came_at=came_at, gap_s=gap_s)
            and (not gesture.is_ready or anyio.current_time() <= gesture.until)
            and (not gesture.is_queued or self._conversations.takes_parts(gesture.row.id))
        )

    def _begin(self, person: _Person, row: InboxRow, message: InboundMessage, now: float) -> None:
        gesture = _Gesture(row, message)
        is_fresh = 0 <= self._now() - row.received_at < QUIET_S
        gesture.parts = [*message.parts] or [part_of(message, row.received_at)]
        gesture.waits = row.state == "new" and is_incomplete(message)
        gesture.until = now + (QUIET_S if is_fresh else RESUMED_QUIET_S)
        gesture.at_most = now + MAX_WAIT_S
        self._note_album(person, gesture, message)
        self._open[person] = gesture
        kept = self._take_kept(person, gesture)
        gesture.expected = len(kept)
        self._line_up(gesture)
        if gesture.waits:
            self._tasks.start_soon(self._wait, gesture)
        for part in kept:
            self._tasks.start_soon(self._accept_kept, gesture, part)

    def _add(
        self, person: _Person, gesture: _Gesture, row: InboxRow, message: InboundMessage
    ) -> None:
        now = anyio.current_time()
        gesture.parts.append(part_of(message, row.received_at))
        gesture.joining.append((row, message))
        self._row_ids.add(row.id)
        self._note_album(person, gesture, message)
        gesture.until = min(now + QUIET_S, gesture.at_most) if gesture.waits else now + FOLLOW_S
        self._open[person] = self._open.pop(person)
        self._drop_kept(person, message)
        if not gesture.is_joining:
            gesture.is_joining = True
            self._joining.add(gesture)
            self._tasks.start_soon(self._join_all, gesture)

    def _line_up(self, gesture: _Gesture) -> None:
        """Queue a gesture in its conversation after all gestures before it."""
        line = self._lines.get(gesture.row.conversation_id)
        if line is None and gesture.is_ready:
            self._queue(gesture)
            return
        self._row_ids.add(gesture.row.id)
        if line is None:
            self._lines[gesture.row.conversation_id] = deque([gesture])
        else:
            line.append(gesture)

    def _advance(self, conversation_id: int) -> None:
        line = self._lines.get(conversation_id)
        while line and line[0].is_ready:
            self._queue(line.popleft())
        if not line:
            self._lines.pop(conversation_id, None)

    def _queue(self, gesture: _Gesture) -> None:
        gesture.is_queued = True
        gesture.until = max(gesture.until, anyio.current_time() + FOLLOW_S)
        self._row_ids.discard(gesture.row.id)
        self._conversations.enqueue(
            gesture.row, gesture.message, former_thread=gesture.former_thread
        )

    def _close(self, person: _Person) -> None:
        """End the gesture of a person."""
        gesture = self._open.pop(person, None)
        if gesture is not None:
            self._complete(gesture)

    def _complete(self, gesture: _Gesture) -> None:
        gesture.waits = False
        self._advance(gesture.row.conversation_id)

    async def _wait(self, gesture: _Gesture) -> None:
        while gesture.waits and (wait := gesture.until - anyio.current_time()) > 0:  # noqa: ASYNC110 - it may grow
            await anyio.sleep(wait)
        if gesture.waits:
            log.info("a message of %s parts is complete", len(gesture.parts))
        self._complete(gesture)

    async def _join_all(self, gesture: _Gesture) -> None:
        """Join the parts of a gesture to its row, as many at once as have arrived."""
        refused: list[tuple[InboxRow, InboundMessage]] = []
        try:
            while gesture.joining and not refused:
                try:
                    is_joined = await self._join(gesture)
                except Exception as error:
                    if is_repeatable(error):
                        await self._store.wait(error)
                        continue
                    log.exception("parts of a message are answered separately")
                    is_joined = False
                self._store.recovered()
                if not is_joined:
                    refused, gesture.joining = gesture.joining, []
        finally:
            gesture.is_joining = False
            self._joining.discard(gesture)
        if refused or not is_incomplete(gesture.message):
            gesture.waits = False
        if refused and self._open.get(person := _person(gesture.message)) is gesture:
            del self._open[person]
        self._advance(gesture.row.conversation_id)
        for row, message in refused:
            self.dispatch(row, message)

    async def _join(self, gesture: _Gesture) -> bool:
        """Join the waiting parts to a gesture's row. Return whether that was possible. Raises StoreError."""
        async with self._changes:
            row = await self._history.find(gesture.row.id)
            if row is None or await self._answers_question(row):
                return False
            batch = list(gesture.joining)
            whole = replace(decode_inbound(row.body), key=row.key)
            if whole.is_stopped:
                return False
            own = whole.parts or (part_of(whole, row.received_at),)
            # Leave out parts that were deleted meanwhile, and parts that an earlier, failed attempt joined.
            known = {part.message_id for part in own if part.message_id}
            told = [
                part_of(one, at.received_at)
                for at, one in batch
                if not one.is_stopped and one.message_id not in known
            ]
            whole = _in_language_of_words(with_parts(whole, [*own, *told]), whole, batch)
            if gesture.is_queued:  # Its turn may have begun with the earlier text.
                whole = replace(whole, edit_count=whole.edit_count + 1)
            said = {at.id: encode_inbound(replace(one, part_of=row.id)) for at, one in batch}
            with anyio.CancelScope(shield=True):
                body = encode_inbound(whole)
                if not await self._history.join(row.id, body, said):
                    return False
                gesture.row, gesture.message = replace(gesture.row, key=row.key, body=body), whole
                gesture.joining = [one for one in gesture.joining if one[0].id not in said]
                self._row_ids -= said.keys()
                if gesture.is_queued:
                    self._conversations.edit(row.id, whole, may_steer=False)
        for part, _ in batch:
            now = self._now()
            self._tracer.record_end(part, outcome="joined", ended_at=now, answered_by=gesture.row)
        return True

    async def _answers_question(self, row: InboxRow) -> bool:
        """Return whether a message answers an interrupted run. No parts can join such a message. Raises StoreError."""
        before = await self._history.find_question(row)
        return before is not None and bool(decode_question(before.question).interrupts)

    def _forget_old(self, now: float) -> None:
        while self._open:
            person, gesture = next(iter(self._open.items()))
            if not gesture.is_ready or gesture.until > now:
                return
            del self._open[person]

    def _note_album(self, person: _Person, gesture: _Gesture, message: InboundMessage) -> None:
        if message.album:
            self._albums[person, message.album] = anyio.current_time(), gesture.row

    def _row_of_album(self, person: _Person, message: InboundMessage) -> InboxRow | None:
        """Return the row of the other files of an album."""
        known = self._albums.get((person, message.album)) if message.album else None
        if known is None or anyio.current_time() - known[0] > LATE_PART_S:
            return None
        return known[1]

    def _keep(self, person: _Person, message: InboundMessage, came_at: float) -> None:
        """Keep in memory a part that does not address the bot, because a later part may address it."""
        now = anyio.current_time()
        sent_at = came_at if message.sent_at is None else message.sent_at
        kept = [one for one in self._kept_of(person, now) if one[1].event_id != message.event_id]
        self._unaddressed[person] = [*kept, (now, replace(message, sent_at=sent_at))]

    def _point_at_kept(self, context: InboundContext) -> None:
        """If a mention of the bot has no words, apply it to the person's previous message, if there is one."""
        message = context.message
        person = _person(message)
        if kept := self._kept_of(person, anyio.current_time()):
            del self._unaddressed[person]
            parts = [part_of(one) for _, one in kept]
            context.message = with_parts(replace(message, text="", is_bare_mention=False), parts)
            context.command = None

    def _kept_of(self, person: _Person, now: float) -> list[tuple[float, InboundMessage]]:
        kept = self._unaddressed.get(person, [])
        return [(at, message) for at, message in kept if now - at < UNADDRESSED_S]

    def _drop_kept(self, person: _Person, message: InboundMessage) -> None:
        """Forget a kept part that was accepted."""
        if kept := self._unaddressed.pop(person, None):
            rest = [one for one in kept if one[1].event_id != message.event_id]
            if rest:
                self._unaddressed[person] = rest

    def _take_kept(self, person: _Person, gesture: _Gesture) -> list[InboundMessage]:
        """Return the kept parts that belong to a message. Forget all kept parts of its sender."""
        if not self._unaddressed or person not in self._unaddressed:
            return []
        first, parts, taken = gesture.message, list(gesture.parts), []
        kept = self._kept_of(person, anyio.current_time())
        del self._unaddressed[person]
        for _, one in reversed(kept):
            is_quoted = one.message_id in first.replies_to
            is_own = first.event_id == one.event_id or first.message_id == one.message_id != ""
            gap_s = UNADDRESSED_S + MAX_GAP_S
            if not (is_own or is_quoted) and fits(first, parts, one, came_at=0.0, gap_s=gap_s):
                parts.append(part_of(one))
                taken.append(one)
        return taken[::-1]

    async def _accept_kept(self, gesture: _Gesture, part: InboundMessage) -> None:
        """Send a part that arrived before the mention through the pipeline."""
        try:
            if self._receive is not None:
                await self._receive(part)
        except Exception:
            log.exception("a message before the one that mentions the bot could not be added to it")
        finally:
            gesture.expected -= 1
            self._advance(gesture.row.conversation_id)


def _in_language_of_words(
    whole: InboundMessage,
    before: InboundMessage,
    batch: Sequence[tuple[InboxRow, InboundMessage]],
) -> InboundMessage:
    """Return a message with the language of its words, which may arrive with the last part."""
    language = next((one.reply_target.language for _, one in batch if one.text), "")
    if before.text or not language:
        return whole
    return replace(whole, reply_target=replace(whole.reply_target, language=language))


def _person(message: InboundMessage) -> _Person:
    """Return the sender and place of a message. A message that begins a thread counts as outside the thread."""
    key, thread = message.key, message.reply_target.thread
    place = "" if thread == message.message_id else thread
    return key.channel, key.workspace, key.chat, place, message.sender.user_id
