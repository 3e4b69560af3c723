"""The card that grows while the agent works: latest text only, paced, decoupled from the stream's reader."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from bus.answers import card_key
from bus.delivery import Delivery
from bus.errors import DeliveryError
from bus.messages import Inbound, MessageId, TextDelivery, encode_delivery
from bus.ports import Adapter, Patches
from store.inbox import InboxRow
from store.outbox import NewDelivery

log = logging.getLogger(__name__)

WORKING_TEXT = "…"
"""What a card says before the first word."""

PATCH_DEADLINE_S = 8.0
"""One patch may take this long; a lost frame is made good by the next one or by the final."""

SPLIT_IN_THREAD_CHARS = 4000
"""Texts longer than this are cut in a worker thread, so that the loop stays free."""


class Live:
    """What a running turn shows. On platforms that cannot patch, nothing but the working sign."""

    def __init__(self, delivery: Delivery, row: InboxRow, inbound: Inbound) -> None:
        self._delivery = delivery
        self._row = row
        self._inbound = inbound
        self._text: Callable[[], str] = str
        self._changed = anyio.Event()
        self._shown: dict[int, str] = {}
        self._ids: dict[int, MessageId] = {}
        self.cards = 0

    def show(self, text: Callable[[], str]) -> None:
        """Say that there is more to show; returns at once, what was not shown yet is skipped.

        `text` gives the text when its time has come: putting it together for every token would make a long
        answer cost the square of its length.
        """
        self._text = text
        self._changed.set()

    async def open(self) -> None:
        """Owe the first card; after a restart the cards that exist already are taken over."""
        found = await self._delivery.outbox.find(card_key(self._row, 0))
        while found is not None:
            self.cards += 1
            found = await self._delivery.outbox.find(card_key(self._row, self.cards))
        if self.cards == 0:
            await self._open_card()

    async def grow(self, adapter: Adapter) -> None:
        """Patch the cards with the latest text until cancelled."""
        if not isinstance(adapter, Patches):
            return
        while True:
            await self._changed.wait()
            growing = self.cards - 1
            if not await self._paced(growing) or not await self._renew(adapter, growing):
                return

    async def _renew(self, adapter: Patches, growing: int) -> bool:
        """Bring all cards up to date, that of index `growing` at once; return False when that cannot be done."""
        # Only now the text is read: what was said while the card waited for its time goes along.
        self._changed = anyio.Event()
        channel = self._delivery.adapters[self._row.key.channel]
        for index, part in enumerate(await _parts(channel, self._text())):
            if index >= self.cards:
                await self._open_card()
            if self._shown.get(index) == part:
                continue
            if index != growing and not await self._paced(index):
                return False
            if not await self._patch(adapter, index, part):
                return False
        return True

    async def _open_card(self) -> None:
        body = TextDelivery(
            channel=self._row.key.channel,
            place=self._inbound.place,
            markdown=WORKING_TEXT,
            provisional=True,
        )
        key = card_key(self._row, self.cards)
        self.cards += 1
        new = NewDelivery(key=key, conversation=self._row.key, body=encode_delivery(body))
        await self._delivery.owe(self._row.key, [new])

    async def _paced(self, index: int) -> bool:
        """Wait until a card may be patched; return False when this turn's cards cannot be patched any more."""
        card = await self._delivery.settled(card_key(self._row, index))
        if card is None or not card.platform_id:
            return False
        self._ids[index] = MessageId(card.platform_id)
        lane = (f"{self._row.key.channel}:card", card.platform_id)
        await self._delivery.pacer.turn(lane, self._interval_s)
        return True

    async def _patch(self, adapter: Patches, index: int, part: str) -> bool:
        """Bring a card whose time has come up to date; return False when no card can be patched any more."""
        place, interval = self._inbound.place, self._interval_s
        started = time.monotonic()
        try:
            # Shielded: a patch that is out must have arrived before the final one is sent after it.
            with anyio.move_on_after(PATCH_DEADLINE_S, shield=True):
                await adapter.patch(place, self._ids[index], part, final=False)
            self._shown[index] = part
        except DeliveryError as error:
            key = card_key(self._row, index)
            log.info("patch of %s skipped: %s", key, error.user_message)
            self._changed.set()
            spent = time.monotonic() - started
            await anyio.sleep(max(interval, (error.retry_after_s or 0.0) - spent))
            return error.retryable
        return True

    @property
    def _interval_s(self) -> float:
        return self._delivery.adapters[self._row.key.channel].capabilities.patch_interval_s


@asynccontextmanager
async def live(delivery: Delivery, row: InboxRow, inbound: Inbound) -> AsyncIterator[Live]:
    """Show that a turn runs; after the block no sign and no patch of it is sent any more."""
    adapter = delivery.adapters[row.key.channel]
    shown = Live(delivery, row, inbound)
    async with (
        delivery.presence.working(adapter, inbound.place),
        anyio.create_task_group() as tasks,
    ):
        if isinstance(adapter, Patches):
            await shown.open()
            tasks.start_soon(shown.grow, adapter)
        try:
            yield shown
        finally:
            tasks.cancel_scope.cancel()


async def _parts(adapter: Adapter, text: str) -> list[str]:
    if len(text) < SPLIT_IN_THREAD_CHARS:
        return list(adapter.split(text))
    return list(await to_thread.run_sync(adapter.split, text))
