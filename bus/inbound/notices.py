"""Notices to senders whose messages are not accepted."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bus.access.checker import AccessChecker
from bus.access.rate_limits import whole_seconds
from bus.bounded import BoundedDict
from bus.context import BusContext
from bus.inbound.localize import LocalizeStage
from bus.inbound.pipeline import InboundContext
from bus.messages import (
    ConversationKey,
    InboundMessage,
    OutboundText,
    chat_of,
    encode_outbound,
)
from bus.platform import Disposition
from store.inbox import QueueFull
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

COLLECT_S = 2.0
"""How long further refused messages of somebody are collected, to be told of in one notice, seconds."""

COLLECT_MARGIN_S = 0.1
"""How long before a notice is due nothing is added to it any more, seconds: it may be sent meanwhile."""

MAX_MARKING = 20
"""Refused messages that get their failure indicator at once; beyond that, a notice is all they get."""

MAX_REFUSED = 10_000
"""People whose refusal is remembered, so that no further one is looked up in the outbox."""


@dataclass(slots=True)
class RefusalBurst:
    """Refused messages of one person that follow each other: the first has a notice, one tells of those behind it.

    Attributes:
        due: When the notice of those that are collected now is sent, Unix seconds.
        key: Its outbox key; "" = nothing is collected yet.
        events: What it tells of. An event that is refused again, after a commit failed, counts once.
    """

    due: float
    key: str = ""
    events: set[str] = field(default_factory=set)

    def takes(self, now: float) -> bool:
        """Return whether a message that is refused now belongs to this burst; go on to its next notice if due."""
        if self.key and now >= self.due - COLLECT_MARGIN_S:
            self.due, self.key, self.events = self.due + COLLECT_S, "", set()
        return 0 < self.due - COLLECT_MARGIN_S - now <= COLLECT_S  # a clock may be set back


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
        """Tell somebody who may not use the bot: a pairing code, or once a day per person and chat that they may not.

        In groups, people who are not listed are told only where nobody else reads it (the answer to a Slack command),
        and nobody is who did not address the bot. Raises StoreError.
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

    def refusal_notice(self, context: InboundContext) -> Callable[[QueueFull], NewOutboxRow]:
        """Return what makes the notice of a message if the journal refuses it; it is stored with the refusal.

        It runs in the journal's one thread, and nothing else changes the bursts.
        """
        message, retry_after_s = context.message, context.retry_after_s
        sender, now = _sender_of(message), self._now()

        def build(full: QueueFull) -> NewOutboxRow:
            burst = self._bursts.get(sender)
            if burst is not None and burst.takes(now):
                return _collected_notice(burst, full.key, message)
            self._bursts[sender] = RefusalBurst(due=now + COLLECT_S)
            texts = message.reply_target.texts
            name = f"{'fast' if retry_after_s else 'full'}:{full.key.channel}:{message.event_id}"
            text = texts.queue_full.format(count=full.pending)
            if retry_after_s:
                text = texts.rate_limited.format(seconds=whole_seconds(retry_after_s))
            return _notice_row(name, full.key, message, text)

        return build

    def deliver_refusal(self, message: InboundMessage, full: QueueFull) -> None:
        """Send the notice of a message that was refused, and mark the message."""
        self._delivery.notify(full.key)
        if self._marking < MAX_MARKING:
            self._marking += 1
            self._tasks.start_soon(self._mark_refused, message)

    async def _mark_refused(self, message: InboundMessage) -> None:
        """Show on the message itself that it was not accepted, where the platform can (a reaction)."""
        try:
            await self._delivery.show_refused(message.key.channel, message.reply_target)
        finally:
            self._marking -= 1

    async def _send_pairing_code(self, message: InboundMessage) -> None:
        request = await self._access.request_pairing(message)
        if request is None:
            log.warning("too many open pairing requests on %s", message.key.channel)
            await self._send_refusal(message, Disposition.PAIRING)
            return
        localized = self._localizer.localize(message)
        texts = localized.reply_target.texts
        text = texts.pairing_code if message.is_private else texts.group_pairing_code
        name = f"pairing:{request.code}"
        await self._send(name, message.key, localized, text.format(code=request.code))

    async def _send_refusal(self, message: InboundMessage, disposition: Disposition) -> None:
        key = message.key
        person = f"{key.channel}:{key.workspace}:{key.chat}:{message.sender.user_id}"
        # Once a day: the outbox sends no row twice.
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
        """Enqueue a notice; one with a known name is not sent again."""
        await self._delivery.enqueue(key, [_notice_row(name, key, message, text)])


def _sender_of(message: InboundMessage) -> tuple[ConversationKey, str]:
    return chat_of(message.key), message.sender.user_id


def _collected_notice(
    burst: RefusalBurst, key: ConversationKey, message: InboundMessage
) -> NewOutboxRow:
    """Return the notice of all messages of a burst; it takes the place of the one without this message."""
    burst.events.add(message.event_id)
    superseded, burst.key = burst.key, f"full:{key.channel}:{message.event_id}"
    text = message.reply_target.texts.refused_more.format(count=len(burst.events))
    row = _notice_row(burst.key, key, message, text)
    return replace(row, not_before=burst.due, supersedes=superseded)


def _notice_row(
    name: str, key: ConversationKey, message: InboundMessage, text: str
) -> NewOutboxRow:
    body = OutboundText(channel=key.channel, reply_target=message.reply_target, markdown=text)
    return NewOutboxRow(key=name, conversation=key, body=encode_outbound(body))
