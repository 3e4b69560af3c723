"""Stage: collects files that are sent together into one message; platforms deliver each as its own message.

The first message is committed like any other; the others are added to its row as they arrive, and it is queued when
no more arrived for a moment. So every message is acknowledged at once, and a crash in between loses nothing: the row
is resumed, and waits for the rest.
"""

import logging
from dataclasses import dataclass, field, replace

import anyio
from typing_extensions import override

from bus.context import BusContext
from bus.conversation.workers import ConversationWorkers
from bus.inbound.pipeline import InboundContext, Stage
from bus.messages import ConversationKey, InboundMessage, decode_inbound, encode_inbound
from bus.platform import Disposition
from store.inbox import InboxRow
from store.message_history import ReceivedEvent

log = logging.getLogger(__name__)

QUIET_S = 1.0
"""An album is complete when nothing more arrived for this time, seconds. Its messages arrive within about 0.1 s."""

RESUMED_QUIET_S = 3.0
"""The same after a restart, when the channel is not connected yet."""

MAX_WAIT_S = 5.0
"""Longest wait for an album, seconds."""

UNADDRESSED_S = 10.0
"""How long a part that arrived before the mention is kept for the part that has it, seconds."""

LATE_PART_S = 120.0
"""How long a late part is recognized after its album was queued, seconds."""


@dataclass(frozen=True, slots=True)
class _AlbumKey:
    """An album in its chat."""

    chat: ConversationKey
    album: str


@dataclass(slots=True, kw_only=True)
class _HeldAlbum:
    """An incomplete album; `until` and `at_most` by anyio's clock."""

    row: InboxRow
    message: InboundMessage
    until: float
    at_most: float
    adding: anyio.Lock = field(default_factory=anyio.Lock)


class AlbumCollector(Stage):
    """Holds the first message of an album until it is complete, and adds the others to it.

    Args:
        workers: Take a complete album.
    """

    def __init__(self, bus: BusContext, workers: ConversationWorkers) -> None:
        self._tasks = bus.tasks
        self._history = bus.stores.history
        self._topics = bus.stores.topics
        self._workers = workers
        self._now = bus.now
        self._held: dict[_AlbumKey, _HeldAlbum] = {}
        self._released: dict[_AlbumKey, tuple[float, InboxRow, InboundMessage]] = {}
        self._unaddressed: dict[_AlbumKey, tuple[float, list[InboundMessage]]] = {}

    @override
    async def __call__(self, context: InboundContext) -> Disposition | None:
        if not context.message.album:
            return None
        disposition = await self._add(context.message)
        if disposition is not None:
            return disposition
        context.message = self._assign_late_part(context.message)
        if not context.message.is_addressed:
            self._keep_unaddressed(context.message)
        return None

    @property
    def held(self) -> frozenset[int]:
        """The ids of the rows that are held here."""
        return frozenset(held.row.id for held in self._held.values())

    def hold(self, row: InboxRow, message: InboundMessage) -> None:
        """Hold the first message of an album until it is complete; returns at once."""
        begun = anyio.current_time()
        is_fresh = 0 <= self._now() - row.received_at < QUIET_S
        quiet_s = QUIET_S if is_fresh else max(QUIET_S, RESUMED_QUIET_S)
        held = _HeldAlbum(
            row=row, message=message, until=begun + quiet_s, at_most=begun + MAX_WAIT_S
        )
        self._held[_album_key(message)] = held
        self._tasks.start_soon(self._wait, held)
        _, parts = self._unaddressed.pop(_album_key(message), (begun, []))
        for part in parts:
            if part.event_id != row.event_id:
                self._tasks.start_soon(self._add_later, part)

    def _keep_unaddressed(self, message: InboundMessage) -> None:
        """Keep a part that does not address the bot: a later part of the album may. In memory only."""
        now = anyio.current_time()
        self._unaddressed = {
            name: kept for name, kept in self._unaddressed.items() if now - kept[0] < UNADDRESSED_S
        }
        _, parts = self._unaddressed.get(_album_key(message), (now, []))
        self._unaddressed[_album_key(message)] = (now, [*parts, message])

    def flush(self, conversation_id: int) -> None:
        """Queue the albums of a conversation: another message arrived there, so they are complete."""
        for held in list(self._held.values()):
            if held.row.conversation_id == conversation_id:
                self._release(held)

    async def _add(self, message: InboundMessage) -> Disposition | None:
        """Add a message to its album; return what became of it, or None if no such album is held.

        Raises:
            StoreError: nothing was stored.
        """
        held = self._held.get(_album_key(message))
        if held is None or held.message.sender.user_id != message.sender.user_id:
            return None
        async with held.adding:
            if _album_key(message) not in self._held:
                return None
            return await self._join(held, message)

    def _assign_late_part(self, message: InboundMessage) -> InboundMessage:
        """Return a part that is too late for its album as an addressed message of the same conversation."""
        known = self._released.get(_album_key(message))
        if known is None or known[2].sender.user_id != message.sender.user_id:
            return message
        at, row, first = known
        if anyio.current_time() - at > LATE_PART_S:
            return message
        return replace(
            message, key=row.key, is_addressed=message.is_addressed or first.is_addressed
        )

    async def _join(self, held: _HeldAlbum, message: InboundMessage) -> Disposition:
        await self._refresh(held)
        whole = replace(
            held.message,
            text="\n".join(text for text in (held.message.text, message.text) if text),
            quoted="\n\n".join(dict.fromkeys(filter(None, (held.message.quoted, message.quoted)))),
            attachments=(*held.message.attachments, *message.attachments),
        )
        body = encode_inbound(whole)
        event = ReceivedEvent(key=held.row.key, event_id=message.event_id, at=self._now())
        with anyio.CancelScope(shield=True):
            if not await self._history.update_body(held.row.id, body, event):
                return Disposition.DUPLICATE
            held.message, held.row = whole, replace(held.row, body=body)
            held.until = min(anyio.current_time() + QUIET_S, held.at_most)
            if message.track_replies and message.message_id:
                await self._topics.set_topic(held.row.key, message.message_id)
        return Disposition.ACCEPTED

    async def _add_later(self, part: InboundMessage) -> None:
        try:
            await self._add(part)
        except Exception:
            log.exception("could not add an earlier file of an album to its message")

    async def _wait(self, held: _HeldAlbum) -> None:
        while (wait := held.until - anyio.current_time()) > 0:  # noqa: ASYNC110 - it may grow
            await anyio.sleep(wait)
        async with held.adding:
            try:
                await self._refresh(held)
            except Exception:
                log.exception("could not reload an album; it is queued as it was")
            self._release(held)

    async def _refresh(self, held: _HeldAlbum) -> None:
        """Reload the message: people edit what they just sent. Raises StoreError."""
        row = await self._history.find(held.row.id)
        if row is not None:
            held.row, held.message = row, replace(decode_inbound(row.body), key=row.key)

    def _release(self, held: _HeldAlbum) -> None:
        name = _album_key(held.message)
        if self._held.get(name) is not held:
            return
        del self._held[name]
        now = anyio.current_time()
        self._released = {
            known: value for known, value in self._released.items() if now - value[0] < LATE_PART_S
        }
        self._released[name] = (now, held.row, held.message)
        log.info("album complete: %s files are one message", len(held.message.attachments))
        self._workers.enqueue(held.row, held.message)


def _album_key(message: InboundMessage) -> _AlbumKey:
    return _AlbumKey(replace(message.key, topic=""), message.album)
