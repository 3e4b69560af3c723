"""Shows that a turn runs, the way its platform and place do it best."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bus.messages import Inbound
from bus.outgoing.delivery import Delivery
from bus.ports import Adapter, Buttons, Patches, Removes
from bus.ports import Previews as PreviewPlatform
from bus.showing.cards import Cards
from bus.showing.display import Display
from bus.showing.notices import Notices
from bus.showing.previews import Previews
from store.inbox import InboxRow


@asynccontextmanager
async def live(delivery: Delivery, row: InboxRow, inbound: Inbound) -> AsyncIterator[Display]:
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


def _display(adapter: Adapter, inbound: Inbound) -> type[Display]:
    if isinstance(adapter, PreviewPlatform) and adapter.previews(inbound.place):
        return Previews
    numbers = adapter.capabilities
    if isinstance(adapter, Patches) and numbers.patches:
        return Cards
    can_take_back = isinstance(adapter, Buttons) and isinstance(adapter, Removes)
    return Notices if numbers.notice_after_s and can_take_back else Display
