"""Notices to senders whose messages are not accepted."""

import logging
from collections import OrderedDict

from bus.access.checker import AccessChecker
from bus.access.rate_limits import SenderRateLimiter, whole_seconds
from bus.context import BusContext
from bus.inbound.localize import LocalizeStage
from bus.inbound.pipeline import InboundContext
from bus.messages import ConversationKey, InboundMessage, OutboundText, encode_outbound
from bus.platform import Disposition
from store.inbox import QueueFull
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

QUEUE_FULL_NOTICE_S = 60.0
"""Minimum time between two notices to a conversation that its queue is full, seconds."""

MAX_REFUSED = 10_000
"""People whose refusal is remembered, so that no further one is looked up in the outbox."""


class IntakeNotices:
    """Tells senders, once, why their messages are not accepted."""

    def __init__(
        self,
        bus: BusContext,
        *,
        access: AccessChecker,
        limiter: SenderRateLimiter,
        localizer: LocalizeStage,
    ) -> None:
        self._access = access
        self._limiter = limiter
        self._localizer = localizer
        self._delivery = bus.delivery
        self._now = bus.now
        self._queue_full_at: dict[int, float] = {}
        self._refused: OrderedDict[str, None] = OrderedDict()

    async def notify_refused(self, message: InboundMessage, disposition: Disposition) -> None:
        """Tell somebody who may not use the bot: a pairing code, or once per person and chat that they may not.

        In groups, people who are not listed are not told, nor anybody who did not address the bot. Raises StoreError.
        """
        match disposition:
            case Disposition.PAIRING | Disposition.GROUP_PAIRING:
                await self._send_pairing_code(message)
            case Disposition.NOT_ALLOWED if message.is_private:
                await self._send_refusal(message, disposition)
            case Disposition.EXTERNAL if message.is_addressed:
                await self._send_refusal(message, disposition)
            case _:
                pass

    async def notify_rate_limited(self, context: InboundContext, key: ConversationKey) -> None:
        """Tell somebody who sent too much, once within the limit's time, when to send it again."""
        message, limit, now = context.message, context.rate_limit, self._now()
        if limit is None or not self._limiter.should_notify(
            message, limit, kind=context.kind, now=now
        ):
            return
        seconds = whole_seconds(context.retry_after_s)
        text = message.reply_target.texts.rate_limited.format(seconds=seconds)
        await self._send(f"fast:{key.channel}:{message.event_id}", key, message, text)

    async def notify_queue_full(self, message: InboundMessage, full: QueueFull) -> None:
        """Tell a conversation, once a minute, that it takes no more messages now."""
        now = self._now()
        self._queue_full_at = {
            conversation: at
            for conversation, at in self._queue_full_at.items()
            if 0 <= now - at < QUEUE_FULL_NOTICE_S
        }
        if full.conversation_id in self._queue_full_at:
            return
        self._queue_full_at[full.conversation_id] = now
        text = message.reply_target.texts.queue_full.format(count=full.pending)
        name = f"full:{full.conversation_id}:{message.event_id}"
        await self._send(name, full.key, message, text)

    async def _send_pairing_code(self, message: InboundMessage) -> None:
        request = await self._access.request_pairing(message)
        if request is None:
            log.warning("too many open pairing requests on %s", message.key.channel)
            return
        localized = self._localizer.localize(message)
        texts = localized.reply_target.texts
        text = texts.pairing_code if message.is_private else texts.group_pairing_code
        name = f"pairing:{request.code}"
        await self._send(name, message.key, localized, text.format(code=request.code))

    async def _send_refusal(self, message: InboundMessage, disposition: Disposition) -> None:
        key = message.key
        person = f"{key.channel}:{key.workspace}:{key.chat}:{message.sender.user_id}"
        name = f"refused:{disposition}:{person}"
        if name in self._refused:
            return
        localized = self._localizer.localize(message)
        texts = localized.reply_target.texts
        is_outsider = disposition is Disposition.EXTERNAL
        text = texts.external_denied if is_outsider else texts.not_allowed
        await self._send(name, key, localized, text)
        self._refused[name] = None
        if len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)

    async def _send(
        self, name: str, key: ConversationKey, message: InboundMessage, text: str
    ) -> None:
        """Enqueue a notice; one with a known name is not sent again."""
        body = OutboundText(channel=key.channel, reply_target=message.reply_target, markdown=text)
        row = NewOutboxRow(key=name, conversation=key, body=encode_outbound(body))
        await self._delivery.enqueue(key, [row])
