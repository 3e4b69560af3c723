"""Stage: collects files that are sent together into one message; platforms deliver each as a message of its own.

The first one is accepted and kept like any message; the others are added to it on disk as they come, and only when
no more came for a moment it is handed on. So nothing has to be held back from the platform, and a crash in between
loses nothing: the message is taken up again, and waits for the rest.
"""

import logging
import time
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup
from typing_extensions import override

from bus.conversation.workers import ConversationWorkers
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import ConversationKey, InboundMessage, decode_inbound, encode_inbound
from bus.platform import Clock, Disposition
from store.errors import StoreError
from store.inbox import InboxRow
from store.message_edits import MessageEditStore, ReceivedEvent
from store.message_topics import MessageTopicStore

log = logging.getLogger(__name__)

QUIET_S = 1.0
"""How long nothing more came when an album is complete, seconds. Its messages come within some 0.1 s."""

RESUMED_QUIET_S = 3.0
"""Likewise after a restart, when the channel has yet to connect."""

MAX_WAIT_S = 5.0
"""How long an album is waited for altogether, seconds."""

UNADDRESSED_S = 10.0
"""For how long a part that came before the mention is kept for the part that has it, seconds."""

LATE_PART_S = 120.0
"""For how long a message that comes late is known to belong to an album that was handed on."""


@dataclass(frozen=True, slots=True)
class _Name:
    """An album, in its chat."""

    chat: ConversationKey
    album: str


@dataclass(slots=True, kw_only=True)
class _Held:
    """An album that may go on; `until` and `at_most` by anyio's clock."""

    row: InboxRow
    inbound: InboundMessage
    until: float
    at_most: float
    adding: anyio.Lock = field(default_factory=anyio.Lock)


class AlbumCollector(Stage):
    """Holds the first message of an album until it is complete, and adds the others to it.

    Args:
        tasks: Owns the waits.
        workers: Take a complete album.
        quiet_s: See `QUIET_S`.
    """

    def __init__(
        self,
        *,
        tasks: TaskGroup,
        edits: MessageEditStore,
        topics: MessageTopicStore,
        workers: ConversationWorkers,
        now: Clock = time.time,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._tasks = tasks
        self._edits = edits
        self._topics = topics
        self._workers = workers
        self._now = now
        self._quiet_s = quiet_s
        self._held: dict[_Name, _Held] = {}
        self._former: dict[_Name, tuple[float, InboxRow, InboundMessage]] = {}
        self._aside: dict[_Name, tuple[float, list[InboundMessage]]] = {}

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        if not context.message.album:
            return None
        disposition = await self._add(context.message)
        if disposition is not None:
            return disposition
        context.message = self._assign_late_part(context.message)
        if not context.message.addressed:
            self._keep_unaddressed(context.message)
        return None

    @property
    def held(self) -> frozenset[int]:
        """The ids of the rows that wait here."""
        return frozenset(held.row.id for held in self._held.values())

    def hold(self, row: InboxRow, inbound: InboundMessage) -> None:
        """Keep the first message of an album until it is complete; returns at once."""
        begun = anyio.current_time()
        is_fresh = 0 <= self._now() - row.received_at < self._quiet_s
        quiet_s = self._quiet_s if is_fresh else max(self._quiet_s, RESUMED_QUIET_S)
        held = _Held(row=row, inbound=inbound, until=begun + quiet_s, at_most=begun + MAX_WAIT_S)
        self._held[_name(inbound)] = held
        self._tasks.start_soon(self._wait, held)
        _, parts = self._aside.pop(_name(inbound), (begun, []))
        for part in parts:
            if part.event_id != row.event_id:
                self._tasks.start_soon(self._add_later, part)

    def _keep_unaddressed(self, inbound: InboundMessage) -> None:
        """Remember a part that did not mean the bot: a later one of the same album may. In memory only."""
        now = anyio.current_time()
        self._aside = {
            name: kept for name, kept in self._aside.items() if now - kept[0] < UNADDRESSED_S
        }
        _, parts = self._aside.get(_name(inbound), (now, []))
        self._aside[_name(inbound)] = (now, [*parts, inbound])

    def flush(self, conversation_id: int) -> None:
        """Hand on what is held in a conversation: something else was said there, so the albums are complete."""
        for held in list(self._held.values()):
            if held.row.conversation_id == conversation_id:
                self._hand_on(held)

    async def _add(self, inbound: InboundMessage) -> Disposition | None:
        """Add a message to the album that it belongs to; return what became of it.

        None: there is no such album, or not any more.

        Raises:
            StoreError: nothing was kept.
        """
        held = self._held.get(_name(inbound))
        if held is None or held.inbound.sender.user_id != inbound.sender.user_id:
            return None
        async with held.adding:
            if _name(inbound) not in self._held:
                return None
            return await self._join(held, inbound)

    def _assign_late_part(self, inbound: InboundMessage) -> InboundMessage:
        """Return a message that came too late for its album as one of the same conversation, meant for the bot."""
        known = self._former.get(_name(inbound))
        if known is None or known[2].sender.user_id != inbound.sender.user_id:
            return inbound
        at, row, first = known
        if anyio.current_time() - at > LATE_PART_S:
            return inbound
        return replace(inbound, key=row.key, addressed=inbound.addressed or first.addressed)

    async def _join(self, held: _Held, inbound: InboundMessage) -> Disposition:
        await self._refresh(held)
        whole = replace(
            held.inbound,
            text="\n".join(text for text in (held.inbound.text, inbound.text) if text),
            attachments=(*held.inbound.attachments, *inbound.attachments),
        )
        body = encode_inbound(whole)
        event = ReceivedEvent(key=held.row.key, event_id=inbound.event_id, at=self._now())
        with anyio.CancelScope(shield=True):
            if not await self._edits.update_body(held.row.id, body, event):
                return Disposition.DUPLICATE
            held.inbound, held.row = whole, replace(held.row, body=body)
            held.until = min(anyio.current_time() + self._quiet_s, held.at_most)
            if inbound.track_replies and inbound.message_id:
                await self._topics.set_topic(held.row.key, inbound.message_id)
        return Disposition.ACCEPTED

    async def _add_later(self, part: InboundMessage) -> None:
        try:
            await self._add(part)
        except StoreError:
            log.warning("a file that came before the mention could not be added to its message")

    async def _wait(self, held: _Held) -> None:
        while (wait := held.until - anyio.current_time()) > 0:  # noqa: ASYNC110 - it may grow
            await anyio.sleep(wait)
        async with held.adding:
            try:
                await self._refresh(held)
            except StoreError:
                log.warning("an album could not be read again; it is handed on as it was")
            self._hand_on(held)

    async def _refresh(self, held: _Held) -> None:
        """Take over what became of the message on disk: people edit what they just sent. Raises StoreError."""
        row = await self._edits.find_by_event(held.row.conversation_id, held.row.event_id)
        if row is not None:
            held.row, held.inbound = row, replace(decode_inbound(row.body), key=row.key)

    def _hand_on(self, held: _Held) -> None:
        name = _name(held.inbound)
        if self._held.get(name) is not held:
            return
        del self._held[name]
        now = anyio.current_time()
        self._former = {
            known: value for known, value in self._former.items() if now - value[0] < LATE_PART_S
        }
        self._former[name] = (now, held.row, held.inbound)
        log.info("%s files that were sent together are one message", len(held.inbound.attachments))
        self._workers.enqueue(held.row, held.inbound)


def _name(inbound: InboundMessage) -> _Name:
    return _Name(replace(inbound.key, topic=""), inbound.album)
