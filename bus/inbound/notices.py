"""Notices to senders whose messages are not accepted."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import anyio

from bus.access.checker import AccessChecker
from bus.access.rate_limits import whole_seconds
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
from bus.retry import StoreRetry
from store.inbox import QueueFull
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

STORE_S = 5.0
"""How long the store may take for such a notice when Parley stops, seconds."""

COLLECT_S = 2.0
"""How long further refused messages of somebody are collected, to be told of in one notice, seconds."""

MAX_MARKING = 20
"""Refused messages that get their failure indicator at once; beyond that, a notice is all they get."""

MAX_REFUSED = 10_000
"""People whose refusal is remembered, so that no further one is looked up in the outbox."""


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
        self._collected: dict[
            tuple[ConversationKey, str], list[tuple[ConversationKey, InboundMessage]]
        ] = {}
        self._refused: OrderedDict[str, None] = OrderedDict()
        self._marking = 0

    async def notify_refused(self, message: InboundMessage, disposition: Disposition) -> None:
        """Tell somebody who may not use the bot: a pairing code, or once a day per person and chat that they may not.

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

    def refusal_notice(self, context: InboundContext) -> Callable[[QueueFull], NewOutboxRow] | None:
        """Return what makes the notice of a message if the journal refuses it; it is stored with the refusal.

        None: a notice was sent just now, and the next one tells of this message as well.
        """
        message, retry_after_s = context.message, context.retry_after_s
        if _sender_of(message) in self._collected:
            return None

        def build(full: QueueFull) -> NewOutboxRow:
            texts = message.reply_target.texts
            name = f"{'fast' if retry_after_s else 'full'}:{full.key.channel}:{message.event_id}"
            text = texts.queue_full.format(count=full.pending)
            if retry_after_s:
                text = texts.rate_limited.format(seconds=whole_seconds(retry_after_s))
            return _notice_row(name, full.key, message, text)

        return build

    def collect_refused(self, message: InboundMessage, full: QueueFull, *, is_told: bool) -> None:
        """Note a message that was refused: unless its notice is stored, one notice tells of all within `COLLECT_S`."""
        if self._marking < MAX_MARKING:
            self._marking += 1
            self._tasks.start_soon(self._mark_refused, message)
        sender = _sender_of(message)
        if sender not in self._collected:
            self._collected[sender] = []
            self._tasks.start_soon(self._tell_collected, sender)
        if is_told:
            self._delivery.notify(full.key)
        else:
            self._collected[sender].append((full.key, message))

    async def _mark_refused(self, message: InboundMessage) -> None:
        """Show on the message itself that it was not accepted, where the platform can (a reaction)."""
        try:
            target = message.reply_target
            await self._delivery.show_finished(message.key.channel, target, ok=False)
        finally:
            self._marking -= 1

    async def _tell_collected(self, sender: tuple[ConversationKey, str]) -> None:
        """Tell of the messages that were collected, until there are none for `COLLECT_S`."""
        store, collected = StoreRetry("notices"), self._collected[sender]

        async def tell() -> None:
            messages = list(collected)
            await store.call(partial(self._send_rest, messages))
            del collected[: len(messages)]

        try:
            while True:
                await anyio.sleep(COLLECT_S)
                if not collected:
                    return
                await tell()
        finally:
            del self._collected[sender]
            if collected:  # Parley stops: the notice is sent after the next start.
                with anyio.move_on_after(STORE_S, shield=True):
                    await tell()

    async def _send_rest(self, refused: Sequence[tuple[ConversationKey, InboundMessage]]) -> None:
        key, last = refused[-1]
        text = last.reply_target.texts.refused_more.format(count=len(refused))
        await self._send(f"full:{key.channel}:{last.event_id}", key, last, text)

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
        # Once a day: the outbox sends no row twice.
        name = f"refused:{disposition}:{person}:{int(self._now() // 86_400)}"
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
        await self._delivery.enqueue(key, [_notice_row(name, key, message, text)])


def _sender_of(message: InboundMessage) -> tuple[ConversationKey, str]:
    return chat_of(message.key), message.sender.user_id


def _notice_row(
    name: str, key: ConversationKey, message: InboundMessage, text: str
) -> NewOutboxRow:
    body = OutboundText(channel=key.channel, reply_target=message.reply_target, markdown=text)
    return NewOutboxRow(key=name, conversation=key, body=encode_outbound(body))
