"""Edits and deletions: applies them to queued, running and answered messages."""

from dataclasses import replace

import anyio

from bus.access.checker import AccessChecker
from bus.commands import parse_command
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.inbound.clean import clean_change
from bus.inbound.gesture_collector import GestureCollector
from bus.inbound.gestures import view_part, with_edited_part, without_part
from bus.inbound.rerun_offers import OPEN_STATES, RerunOffers
from bus.messages import (
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition
from store.inbox import InboxRow, TurnEnd
from store.message_history import ReceivedEvent

ADDRESSED_BY_EDIT_S = 600.0
"""How long after a message was sent an edit can address it to the bot, seconds. People add forgotten mentions.

If the edit has a time, the platform's clock counts, because an edit may arrive late, or even before its message.
"""

MAX_EDITS = 50
"""Maximum number of edits of one message, because each may start a run."""


class MessageEditHandler:
    """Applies edits and deletions one at a time, because they are rare and each is based on the previous one.

    The first step stores the row's new body, together with a record of the event. A restart continues from there.

    Args:
        bus: The bus.
        access: Knows who may use the bot.
        conversations: Queued and running messages.
        gestures: Messages that wait for further parts.
        reruns: Offers to answer a message again.
        changes: Serializes changes of stored messages.
    """

    def __init__(
        self,
        bus: BusContext,
        *,
        access: AccessChecker,
        conversations: Conversations,
        gestures: GestureCollector,
        reruns: RerunOffers,
        changes: anyio.Lock,
    ) -> None:
        self._inbox = bus.stores.inbox
        self._history = bus.stores.history
        self._access = access
        self._conversations = conversations
        self._gestures = gestures
        self._reruns = reruns
        self._delivery = bus.delivery
        self._now = bus.now
        self._changes = changes

    async def handle(self, raw: MessageEdit | MessageDeletion) -> Disposition | InboundMessage:
        """Apply an edit or deletion. Return its disposition, or the message that the edit addresses to the bot.

        Raises:
            StoreError: Nothing was stored.
        """
        change = clean_change(raw)
        async with self._changes:
            found = await self._find(change)
            if found is None:
                return self._addressed_by_edit(change)
            row, before = found
            if before.is_stopped and row.state in OPEN_STATES:
                return Disposition.UNCHANGED
            if isinstance(change, MessageDeletion):
                return await self._delete(change, row, before)
            part = view_part(before, change.message_id)
            change = replace(change, edited=keep_earlier(part, change.edited))
            refusal = await self._refusal(row, part, change.edited)
            return refusal or await self._edit(change, row, before)

    async def _find(
        self, change: MessageEdit | MessageDeletion
    ) -> tuple[InboxRow, InboundMessage] | None:
        """Return the row that contains a message, and the row's message; None if there is none. Raises StoreError."""
        row = await self._history.find_by_message(change.key, change.message_id)
        message = decode_inbound(row.body) if row is not None else None
        if message is not None and message.part_of:
            row = await self._history.find(message.part_of)
            message = decode_inbound(row.body) if row is not None else None
        return (row, replace(message, key=row.key)) if row and message else None

    def _addressed_by_edit(
        self, change: MessageEdit | MessageDeletion
    ) -> Disposition | InboundMessage:
        """Return an edited message that was not accepted before, because it may address the bot now."""
        if isinstance(change, MessageDeletion) or change.edited.sent_at is None:
            return Disposition.NOT_ADDRESSED
        edited_at = change.edited.edited_at or self._now()
        if edited_at - change.edited.sent_at > ADDRESSED_BY_EDIT_S:
            return Disposition.NOT_ADDRESSED
        return replace(change.edited, event_id=change.event_id)

    async def _refusal(
        self, row: InboxRow, before: InboundMessage, edited: InboundMessage
    ) -> Disposition | None:
        """Return why an edit has no effect; None if it has one."""
        if edited.sender.user_id != before.sender.user_id:
            return Disposition.NOT_ALLOWED
        has_same_files = _files(edited) == _files(before)
        # Edits may arrive in the wrong order, because platforms resend missed ones.
        is_outdated = edited.edited_at < before.edited_at
        if is_outdated or (edited.text == before.text and has_same_files):
            # The offer may have been committed after its caller stopped waiting.
            self._delivery.notify(row.key)
            return Disposition.UNCHANGED
        if row.kind != "chat" or parse_command(edited.text) is not None:
            # Commands run at once, so an edit is too late.
            return Disposition.UNSUPPORTED
        # Joining a part to a message counts as an edit if the message's turn has begun.
        if before.edit_count - len(before.parts) >= MAX_EDITS:
            return Disposition.RATE_LIMITED
        # The message still addresses the bot, even if the edit removed the mention.
        addressed = replace(edited, key=before.key, sender=before.sender, is_addressed=True)
        disposition = await self._access.check(addressed)
        return None if disposition is Disposition.ACCEPTED else disposition

    async def _delete(
        self, deletion: MessageDeletion, row: InboxRow, before: InboundMessage
    ) -> Disposition:
        is_unread = row.state in OPEN_STATES or row.outcome == "taken_over"
        if row.kind != "chat" or not is_unread:
            return Disposition.UNCHANGED
        if (rest := without_part(before, deletion.message_id)) is not None:
            return await self._change(deletion, row, rest)
        deleted = replace(before, is_stopped=True, is_deleted=True)
        body, event = encode_inbound(deleted), self._event(deletion)
        if not await self._history.update_body(row.id, body, event):
            return Disposition.DUPLICATE
        self._gestures.change(row.id, deleted)
        if self._conversations.delete(row.id, deleted):
            await self._inbox.finish(row.id, [], end=TurnEnd("deleted"))
        return Disposition.ACCEPTED

    async def _edit(self, edit: MessageEdit, row: InboxRow, before: InboundMessage) -> Disposition:
        edited = edit.edited
        if before.parts:
            after = with_edited_part(before, edit.message_id, edited)
        else:
            after = replace(before, text=edited.text, attachments=edited.attachments)
        after = replace(
            after,
            is_addressed=before.is_addressed or edited.is_addressed,
            edited_at=edited.edited_at,
        )
        return await self._change(edit, row, after)

    async def _change(
        self, change: MessageEdit | MessageDeletion, row: InboxRow, changed: InboundMessage
    ) -> Disposition:
        """Store a row's changed message, then pass it to the queue and the turn. Raises StoreError."""
        after = replace(changed, edit_count=changed.edit_count + 1)
        # If the row is answered, this transaction also stores the offer, because the process may end at any moment. If
        # the row is open, the transaction that stores its answer makes the offer, unless the turn applies the edit.
        if not await self._history.update_body(
            row.id,
            encode_inbound(after),
            self._event(change),
            reset_starts=True,
            offers=await self._reruns.new_offer(row, after),
        ):
            return Disposition.DUPLICATE
        self._delivery.notify(row.key)
        self._gestures.change(row.id, after)
        self._conversations.edit(row.id, after)
        return Disposition.ACCEPTED

    def _event(self, change: MessageEdit | MessageDeletion) -> ReceivedEvent:
        return ReceivedEvent(key=change.key, event_id=change.event_id, at=self._now())


def keep_earlier(before: InboundMessage, edited: InboundMessage) -> InboundMessage:
    """Return an edited message with the original's quotations, because an edit changes only words and files.

    The edit contains neither the earlier messages of the thread nor quoted files.
    """
    if not before.quoted:
        return edited
    own = len(edited.attachments)
    has_same_files = _files(replace(before, attachments=before.attachments[:own])) == _files(edited)
    return replace(
        edited,
        quoted=before.quoted,
        attachments=before.attachments if has_same_files else edited.attachments,
    )


def _files(message: InboundMessage) -> list[tuple[str, str, int | None]]:
    """Return what identifies files. Leaves out `ref`, which platforms change each time they report the same file."""
    return [(file.kind, file.name, file.size_bytes) for file in message.attachments]
