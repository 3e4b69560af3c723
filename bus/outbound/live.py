"""Shows that a turn runs, the way its platform and place do it best."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bus.messages import InboundMessage
from bus.outbound.draft import DraftReply
from bus.outbound.live_reply import LiveReply
from bus.outbound.progress_notice import ProgressNotice
from bus.outbound.streaming_message import StreamingMessage
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter, SupportsButtons, SupportsDeletion, SupportsStreaming
from bus.platform import SupportsDrafts as PreviewPlatform
from store.inbox import InboxRow


@asynccontextmanager
async def show_live_reply(
    delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage
) -> AsyncIterator[LiveReply]:
    """Show that a turn runs; after the block no sign and no patch of it is sent any more."""
    adapter = delivery.adapters[row.key.channel]
    kind = _display(adapter, inbound)
    display = kind(delivery, row, inbound)
    async with (
        delivery.presence.working(adapter, inbound.reply_target),
        anyio.create_task_group() as tasks,
    ):
        await display.open()
        if kind is not LiveReply:  # which shows nothing
            tasks.start_soon(display.run)
        try:
            yield display
        finally:
            tasks.cancel_scope.cancel()


def _display(adapter: Adapter, inbound: InboundMessage) -> type[LiveReply]:
    if isinstance(adapter, PreviewPlatform) and adapter.uses_drafts(inbound.reply_target):
        return DraftReply
    numbers = adapter.capabilities
    if isinstance(adapter, SupportsStreaming) and numbers.streaming:
        return StreamingMessage
    can_take_back = isinstance(adapter, SupportsButtons) and isinstance(adapter, SupportsDeletion)
    return ProgressNotice if numbers.progress_notice_after_s and can_take_back else LiveReply
