"""Shows that a turn runs, the way its platform and place do it best."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bus.messages import InboundMessage
from bus.outbound.cards import Cards
from bus.outbound.delivery import DeliveryWorker
from bus.outbound.display import Display
from bus.outbound.notices import Notices
from bus.outbound.previews import Previews
from bus.platform import Adapter, SupportsButtons, SupportsDeletion, SupportsStreaming
from bus.platform import SupportsDrafts as PreviewPlatform
from store.inbox import InboxRow


@asynccontextmanager
async def live(
    delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage
) -> AsyncIterator[Display]:
    """Show that a turn runs; after the block no sign and no patch of it is sent any more."""
    adapter = delivery.adapters[row.key.channel]
    kind = _display(adapter, inbound)
    display = kind(delivery, row, inbound)
    async with (
        delivery.presence.working(adapter, inbound.place),
        anyio.create_task_group() as tasks,
    ):
        await display.open()
        if kind is not Display:  # which shows nothing
            tasks.start_soon(display.keep_up)
        try:
            yield display
        finally:
            tasks.cancel_scope.cancel()


def _display(adapter: Adapter, inbound: InboundMessage) -> type[Display]:
    if isinstance(adapter, PreviewPlatform) and adapter.previews(inbound.place):
        return Previews
    numbers = adapter.capabilities
    if isinstance(adapter, SupportsStreaming) and numbers.patches:
        return Cards
    can_take_back = isinstance(adapter, SupportsButtons) and isinstance(adapter, SupportsDeletion)
    return Notices if numbers.notice_after_s and can_take_back else Display
