"""Notices to senders whose messages are not accepted."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from bus.access.checker import AccessChecker
from bus.bounded import BoundedDict
from bus.context import BusContext
from bus.inbound.localize import LocalizeStage
from bus.messages import (
    ConversationKey,
    InboundMessage,
    OutboundText,
    chat_of,
    encode_outbound,
)
from bus.platform import Disposition
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

COLLECT_S = 2.0
"""How long to collect further refused messages of a person for one notice, seconds."""

COLLECT_MARGIN_S = 0.1
"""No more messages are added to a notice this long before it is due, seconds, because it may be sent meanwhile."""

MAX_MARKING = 20
"""Maximum number of refused messages that get a failure indicator at a time. Further ones get only a notice."""

MAX_REFUSED = 10_000
"""Maximum number of people whose refusal is remembered, so that it is not looked up in the outbox again."""


Notices = Mapping[str, NewOutboxRow]
"""Notices about refused messages, by the event of the message."""

RefusalReason = Literal["full", "fast"]
"""Why a message is refused: the queue of its conversation is full, or its sender exceeds the rate limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalBurst:
    """Consecutive refused messages of one person: the first gets a notice, and one notice covers the rest.

    Attributes:
        due: When to send the notice that is being collected, Unix seconds.
        key: The outbox key of that notice. "" = nothing has been collected yet.
        count: The number of messages that it covers.
        notices: The notices since the previous one was due.
        earlier: The notices before that.
    """

    due: float
    key: str = ""
    count: int = 0
    notices: Notices = field(default_factory=dict)
    earlier: Notices = field(default_factory=dict)

    def at(self, now: float) -> "RefusalBurst | None":
        """Return the burst that includes a message refused now, or None if the message begins a new burst."""
        burst = self
        if self.key and now >= self.due - COLLECT_MARGIN_S:
            burst = RefusalBurst(due=self.due + COLLECT_S, earlier=self.notices)
        is_near = 0 < burst.due - COLLECT_MARGIN_S - now <= COLLECT_S  # a clock may be set back
        return burst if is_near else None

    def collect(
        self, key: ConversationKey, message: InboundMessage
    ) -> "tuple[NewOutboxRow, RefusalBurst]":
        """Return one notice about all collected messages, which replaces the previous notice, and the new burst."""
        name, count = f"full:{key.channel}:{message.event_id}", self.count + 1
        text = message.reply_target.texts.refused_more.format(count=count)
        row = _notice_row(name, key, message, text)
        row = replace(row, not_before=self.due, supersedes=self.key)
        notices = {**self.notices, message.event_id: row}
        return row, replace(self, key=name, count=count, notices=notices)


NO_BURST = RefusalBurst(due=0.0)


class IntakeNotices:
    """Tells senders why their messages are not accepted."""

    def __init__(
        self,
        bus: BusContext,
        *,
        access: AccessChecker,
        localizer: LocalizeStage,
    ) -> None:
        self._access = access
        self._localizer = localizer
        self._delivery = bus.delivery
        self._now = bus.now
        self._tasks = bus.tasks
        self._bursts = BoundedDict[tuple[ConversationKey, str], RefusalBurst](MAX_REFUSED)
        self._refused = BoundedDict[str, None](MAX_REFUSED)
        self._marking = 0

    async def notify_refused(self, message: InboundMessage, disposition: Disposition) -> None:
        """Notify a person who may not use the bot: send a pairing code, or a refusal once a day per person and chat.

        In groups, people who are not listed are notified only if no one else sees the notice (a response to a Slack
        command). People who did not address the bot are never notified. Raises StoreError.
        """
        is_for_sender_only = message.is_private or bool(message.reply_target.response_url)
        match disposition:
            case Disposition.PAIRING | Disposition.GROUP_PAIRING:
                await self._send_pairing_code(message)
            case Disposition.NOT_ALLOWED | Disposition.DISABLED if is_for_sender_only:
                await self._send_refusal(message, disposition)
            case Disposition.EXTERNAL if message.is_addressed:
                await self._send_refusal(message, disposition)
            case _:
                pass

    def refusal_notice(
        self,
        refused: InboundMessage,
        key: ConversationKey,
        reason: RefusalReason,
        text: str,
        *,
        now: float,
    ) -> NewOutboxRow:
        """Return the notice about a refused message, to be stored with the refusal.

        A unit of work calls this and may run several times. Even then, each message gets only one notice. The units of
        one chat run one after another.

        Args:
            refused: The message.
            key: Its conversation.
            reason: Why it is refused.
            text: The notice's text, unless it covers several messages.
            now: When the message is refused, Unix seconds. The unit of work runs in another thread.
        """
        sender, event_id = _sender_of(refused), refused.event_id
        known = self._bursts.get(sender, NO_BURST)
        if row := known.notices.get(event_id) or known.earlier.get(event_id):
            return row
        if burst := known.at(now):
            row, burst = burst.collect(key, refused)
        else:
            row = _notice_row(f"{reason}:{key.channel}:{event_id}", key, refused, text)
            burst = RefusalBurst(
                due=now + COLLECT_S, notices={event_id: row}, earlier=known.notices
            )
        self._bursts[sender] = burst
        return row

    def deliver_refusal(self, message: InboundMessage, key: ConversationKey) -> None:
        """Send the notice about a refused message, and mark the message."""
        self._delivery.notify(key)
        if self._marking < MAX_MARKING:
            self._marking += 1
            self._tasks.start_soon(self._mark_refused, message)

    async def _mark_refused(self, message: InboundMessage) -> None:
        """Show on the message that it was not accepted (with a reaction), if the platform can do so."""
        try:
            await self._delivery.show_refused(message.key.channel, message.reply_target)
        finally:
            self._marking -= 1

    async def _send_pairing_code(self, message: InboundMessage) -> None:
        localized = self._localizer.localize(message)
        request = await self._access.request_pairing(localized)
        if request is None:
            log.warning("too many open pairing requests on %s", message.key.channel)
            await self._send_refusal(message, Disposition.PAIRING)
            return
        texts = localized.reply_target.texts
        text = texts.pairing_code if message.is_private else texts.group_pairing_code
        name = f"pairing:{request.code}"
        await self._send(name, message.key, localized, text.format(code=request.code))

    async def _send_refusal(self, message: InboundMessage, disposition: Disposition) -> None:
        key = message.key
        person = f"{key.channel}:{key.workspace}:{key.chat}:{message.sender.user_id}"
        # The key contains the day. The outbox sends no row twice, so people get one notice a day.
        name = f"refused:{disposition}:{person}:{int(self._now() // 86_400)}"
        if name in self._refused:
            return
        localized = self._localizer.localize(message)
        texts = localized.reply_target.texts
        text = {
            Disposition.EXTERNAL: texts.external_denied,
            Disposition.DISABLED: texts.not_answered_here,
            Disposition.PAIRING: texts.pairing_full,
        }.get(disposition, texts.not_allowed)
        await self._send(name, key, localized, text)
        self._refused[name] = None

    async def _send(
        self, name: str, key: ConversationKey, message: InboundMessage, text: str
    ) -> None:
        """Enqueue a notice, unless one with this name has already been sent."""
        await self._delivery.enqueue(key, [_notice_row(name, key, message, text)])


def _sender_of(message: InboundMessage) -> tuple[ConversationKey, str]:
    return chat_of(message.key), message.sender.user_id


def _notice_row(
    name: str, key: ConversationKey, message: InboundMessage, text: str
) -> NewOutboxRow:
    body = OutboundText(channel=key.channel, reply_target=message.reply_target, markdown=text)
    return NewOutboxRow(key=name, conversation=key, body=encode_outbound(body))
