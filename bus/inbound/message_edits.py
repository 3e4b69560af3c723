"""Messages that are edited or deleted after they were sent: what waits, runs or was answered follows."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import anyio

from bus.buttons import ButtonAction, ButtonToken
from bus.commands import parse_command
from bus.conversation.worker import QueueState
from bus.conversation.workers import ConversationWorkers
from bus.history.turn_history import TurnHistory, rerun_event_id
from bus.inbound.button_presses import AuthorizedPress, PressOutcome
from bus.inbound.cleaning import clean_change
from bus.messages import (
    Button,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    OutboundText,
    decode_inbound,
    encode_inbound,
    encode_outbound,
)
from bus.outbound.rows import marked_edit_row
from bus.outbound.worker import DeliveryWorker
from bus.platform import Clock, Disposition
from store.inbox import InboxRow, InboxStore
from store.message_edits import MessageEditStore, ReceivedEvent
from store.outbox import NewOutboxRow

ADDRESSED_BY_EDIT_S = 600.0
"""How long after it was sent an edit may make a message one for the bot: people add the mention they forgot."""

RERUN_OFFER_S = 24 * 3600.0
"""How long after it came an edited message is offered to be answered again."""


TURN_END_S = 2.0
"""How long an answer that is being written down is waited for: the platform wants to hear that the edit arrived."""

MAX_EDITS = 50
"""Edits of one message that are acted on: each may start a run."""

_OPEN = ("new", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What changes read and write in the journal."""

    inbox: InboxStore
    revisions: MessageEditStore
    originals: TurnHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where messages come in.

    Attributes:
        receive: Accepts a message.
        admits: Judges whether its sender may talk to the bot.
    """

    receive: Callable[[InboundMessage], Awaitable[Disposition]]
    admits: Callable[[InboundMessage], Awaitable[Disposition]]


class MessageEditHandler:
    """Acts on changed messages, one after the other: they are rare, and each builds on the one before.

    The row's body is what counts: it is rewritten before anything else happens, together with the note that the
    event was seen, and a restart goes on from it.
    """

    def __init__(
        self,
        *,
        rows: Rows,
        door: Door,
        mailboxes: ConversationWorkers,
        delivery: DeliveryWorker,
        now: Clock,
    ) -> None:
        self._inbox = rows.inbox
        self._revisions = rows.revisions
        self._originals = rows.originals
        self._door = door
        self._mailboxes = mailboxes
        self._delivery = delivery
        self._now = now
        self._one = anyio.Lock()

    async def change(self, raw: MessageEdit | MessageDeletion) -> Disposition | InboundMessage:
        """Act on a change; return what became of it, or the message that it made one for the bot. Raises StoreError."""
        change = clean_change(raw)
        async with self._one:
            row = await self._revisions.find_by_message(change.key, change.message_id)
            if row is None:
                return self._news(change)
            return await self._judged(change, row)

    async def rerun(self, pressed: AuthorizedPress) -> PressOutcome:
        """Have a message answered again as it was edited: a button's deed."""
        row, asked = pressed.row, pressed.asked
        if row.state in _OPEN or not asked.edit_count:
            return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_inactive)
        offered = self._reruns(row, await self._originals.rows_after(row))
        again = replace(
            asked,
            event_id=rerun_event_id(row, asked.edit_count),
            message_id="",
            reply_target=replace(asked.reply_target, callback=""),
            addressed=True,
            replies_to=(),
            track_replies=False,
            rewind_point=await self._originals.rewind_point(row, asked),
            answers_row=0,
            stopped=False,
            edit_count=0,
        )
        match reason := await self._door.receive(again):
            case Disposition.ACCEPTED:
                await self._settle(row, asked, len(offered))
                return PressOutcome(reason)
            case Disposition.DUPLICATE:
                return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_answered)
            case Disposition.QUEUE_FULL | Disposition.RATE_LIMITED:
                return PressOutcome(reason, pressed.texts.press_full)
            case _:
                return PressOutcome(reason, pressed.texts.press_not_allowed)

    async def _judged(self, change: MessageEdit | MessageDeletion, row: InboxRow) -> Disposition:
        before = replace(decode_inbound(row.body), key=row.key)
        if before.stopped and row.state in _OPEN:
            return Disposition.UNCHANGED
        if isinstance(change, MessageDeletion):
            return await self._delete(change, row, before)
        refusal = await self._refusal(row, before, change.edited)
        if refusal is not None:
            return refusal
        return await self._edit(self._event(change), row, before, change.edited)

    def _news(self, change: MessageEdit | MessageDeletion) -> Disposition | InboundMessage:
        """Judge a change of a message that was not accepted: an edit may have made it one for the bot."""
        edited = change.edited if isinstance(change, MessageEdit) else None
        if (
            edited is None
            or edited.sent_at is None
            or self._now() - edited.sent_at > ADDRESSED_BY_EDIT_S
        ):
            return Disposition.NOT_ADDRESSED
        return replace(edited, event_id=change.event_id)

    async def _refusal(
        self, row: InboxRow, before: InboundMessage, edited: InboundMessage
    ) -> Disposition | None:
        """Return why an edit does not count; None if it does."""
        if edited.sender.user_id != before.sender.user_id:
            return Disposition.NOT_ALLOWED
        same_files = bool(before.album) or _names(edited) == _names(before)
        if edited.text == before.text and same_files:
            return Disposition.UNCHANGED
        if row.kind != "chat" or parse_command(edited.text) is not None:
            # Commands are carried out at once, and once.
            return Disposition.UNSUPPORTED
        if before.edit_count >= MAX_EDITS:
            return Disposition.RATE_LIMITED
        # The bot is meant, whether or not the mention is still there.
        reason = await self._door.admits(replace(edited, key=before.key, addressed=True))
        return None if reason is Disposition.ACCEPTED else reason

    async def _delete(
        self, change: MessageEdit | MessageDeletion, row: InboxRow, before: InboundMessage
    ) -> Disposition:
        if row.kind != "chat" or row.state not in _OPEN:
            return Disposition.UNCHANGED
        deleted = replace(before, stopped=True)
        event = self._event(change)
        if not await self._revisions.update_body(row.id, encode_inbound(deleted), event):
            return Disposition.DUPLICATE
        if self._mailboxes.delete(row.id, deleted) is QueueState.WAITING:
            await self._inbox.finish(row.id, [])
        return Disposition.ACCEPTED

    async def _edit(
        self, event: ReceivedEvent, row: InboxRow, before: InboundMessage, edited: InboundMessage
    ) -> Disposition:
        # Each message of an album has one of its files; the album has all.
        files = before.attachments if before.album else edited.attachments
        after = replace(
            before, text=edited.text, attachments=files, edit_count=before.edit_count + 1
        )
        if not await self._revisions.update_body(row.id, encode_inbound(after), event, anew=True):
            return Disposition.DUPLICATE
        standing = self._mailboxes.edit(row.id, after)
        if standing is QueueState.FINISHING:
            with anyio.move_on_after(TURN_END_S):
                await self._mailboxes.wait_finished(row.id)
        if standing in (QueueState.FINISHING, QueueState.FINISHED):
            await self._offer(row.id, after)
        return Disposition.ACCEPTED

    async def _offer(self, row_id: int, inbound: InboundMessage) -> None:
        """Offer to answer a message again, once until somebody takes the offer up."""
        row = await self._originals.find_row(row_id)
        if row is None or row.state in _OPEN or self._is_old(row):
            return
        later = await self._originals.rows_after(row)
        reruns = self._reruns(row, later)
        theirs = [one for one in later if one not in reruns and one.thread_id == row.thread_id]
        body = OutboundText(
            channel=row.key.channel,
            reply_target=replace(inbound.reply_target, callback=""),
            markdown=_offer_text(inbound, takes_more=bool(theirs)),
            buttons=(_button(row, inbound),),
        )
        key = _offer_key(row, len(reruns))
        owed = NewOutboxRow(key=key, conversation=row.key, body=encode_outbound(body))
        await self._delivery.enqueue(row.key, [owed])

    async def _settle(self, row: InboxRow, inbound: InboundMessage, number: int) -> None:
        """Take the button of an offer away that was taken up."""
        found = await self._delivery.find_row(_offer_key(row, number))
        if found is not None:
            mark = f"✓ {inbound.reply_target.texts.button_rerun}"
            await self._delivery.enqueue(row.key, [marked_edit_row(found, mark)])

    def _reruns(self, row: InboxRow, later: list[InboxRow]) -> list[InboxRow]:
        return [one for one in later if one.event_id.startswith(f"rerun:{row.id}:")]

    def _is_old(self, row: InboxRow) -> bool:
        return self._now() - row.received_at > RERUN_OFFER_S

    def _event(self, change: MessageEdit | MessageDeletion) -> ReceivedEvent:
        return ReceivedEvent(key=change.key, event_id=change.event_id, at=self._now())


def _names(inbound: InboundMessage) -> list[tuple[str, str, int | None]]:
    """Return what tells files apart; platforms name the same file differently each time (`ref`)."""
    return [(file.kind, file.name, file.size_bytes) for file in inbound.attachments]


def _offer_key(row: InboxRow, number: int) -> str:
    return f"{row.id}:rerun:{number}"


def _offer_text(inbound: InboundMessage, *, takes_more: bool) -> str:
    texts = inbound.reply_target.texts
    return texts.rerun_offer_later if takes_more else texts.rerun_offer


def _button(row: InboxRow, inbound: InboundMessage) -> Button:
    token = ButtonToken(ButtonAction.RERUN, row.id).text
    return Button(label=inbound.reply_target.texts.button_rerun, token=token, style="primary")
