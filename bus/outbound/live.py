"""Shows a running turn in the best way that its platform and chat support."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import cast

import anyio

from bus.messages import InboundMessage
from bus.outbound.draft import DraftReply
from bus.outbound.live_reply import LiveReply
from bus.outbound.progress_notice import ProgressNotice
from bus.outbound.streaming_message import StreamingMessage
from bus.outbound.worker import DeliveryWorker
from bus.platform import (
    Adapter,
    SupportsButtons,
    SupportsDeletion,
    SupportsDrafts,
    SupportsStreaming,
)
from bus.tasks import run_beside
from store.inbox import InboxRow


@asynccontextmanager
async def show_live_reply(
    delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage
) -> AsyncIterator[LiveReply]:
    """Show inside the block that a turn runs. After the block, sends no indicators or edits for it.

    If the agent may stay silent, nothing is shown before its first words.

    Raises only what the block raises. Failures to show something are logged.
    """
    adapter = delivery.adapter(row.key.channel)
    live_reply = _best_type(adapter, inbound)(delivery, row, inbound)
    # A message with a run was injected into another message's run and already has an indicator.
    is_first = live_reply.is_first_attempt and row.run_id is None
    show_working = delivery.show_working(row.key.channel, inbound.reply_target, is_first=is_first)
    show_reply = live_reply.run_safely if type(live_reply) is not LiveReply else None
    await live_reply.find_shown()
    if inbound.may_be_declined:

        async def show_once_there_are_words() -> None:
            await live_reply.wait_for_words()
            await live_reply.open()
            async with run_beside(*filter(None, (show_working,))):
                await live_reply.run_safely()
                await anyio.sleep_forever()  # The indicator stays until the turn ends.

        async with run_beside(show_once_there_are_words):
            yield live_reply
        return
    await live_reply.open()
    async with run_beside(*filter(None, (show_working, show_reply))):
        yield live_reply


def _best_type(adapter: Adapter, inbound: InboundMessage) -> type[LiveReply]:
    drafts, streaming, removable = _supported_by(type(adapter))
    if drafts and cast("SupportsDrafts", adapter).uses_drafts(inbound.reply_target):
        return DraftReply
    numbers = adapter.capabilities
    if streaming and numbers.streaming:
        return StreamingMessage
    return ProgressNotice if numbers.progress_notice_after_s and removable else LiveReply


@cache
def _supported_by(kind: type[Adapter]) -> tuple[bool, bool, bool]:
    """Return whether adapters of a class have drafts, streaming, and both buttons and deletion.

    Checking a protocol takes 50 function calls, so it is not done for each turn.
    """
    removable = issubclass(kind, SupportsButtons) and issubclass(kind, SupportsDeletion)
    return issubclass(kind, SupportsDrafts), issubclass(kind, SupportsStreaming), removable
