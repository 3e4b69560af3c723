"""Cards that grow while the agent works: latest text only, paced, decoupled from the stream's reader."""

import logging
import time
from dataclasses import replace

import anyio
from anyio import to_thread
from typing_extensions import override

from bus.buttons import stop_button
from bus.errors import DeliveryError
from bus.messages import MessageId, OutboundText, encode_outbound
from bus.outbound.live_reply import LiveReply
from bus.outbound.rows import streaming_key
from bus.platform import Adapter, SupportsStreaming
from store.outbox import NewOutboxRow

log = logging.getLogger(__name__)

WORKING_TEXT = "…"
"""What a card says before the first word."""

PATCH_DEADLINE_S = 8.0
"""One patch may take this long; a lost frame is made good by the next one or by the final."""

SPLIT_IN_THREAD_CHARS = 4000
"""Texts longer than this are cut in a worker thread, so that the loop stays free."""


class StreamingMessage(LiveReply):
    """A turn whose answer grows in messages that become the answer. The last of them has the stop button."""

    _frames: dict[int, tuple[str, bool]]
    _ids: dict[int, MessageId]

    @override
    async def open(self) -> None:
        """Owe the first card; after a restart the cards that exist already are taken over."""
        self._frames, self._ids = {}, {}
        while not self._is_first and await self._is_there(self.shown.streaming_count):
            self._count()
        if self.shown.streaming_count == 0:
            await self._open_card()

    @override
    async def run(self) -> None:
        adapter = self._adapter
        if not isinstance(adapter, SupportsStreaming):
            return
        while True:
            await self._changed.wait()
            growing = self.shown.streaming_count - 1
            if not await self._paced(growing) or not await self._renew(adapter, growing):
                return

    async def _renew(self, adapter: SupportsStreaming, growing: int) -> bool:
        """Bring all cards up to date, that of index `growing` at once; return False when that cannot be done."""
        # Only now the text is read: what was said while the card waited for its time goes along.
        self._changed = anyio.Event()
        parts = with_progress(
            self._adapter, await _parts(self._adapter, self._text()), self._below()
        )
        # A card that says nothing looks broken: between two calls of tools there may be no word yet.
        for index, part in enumerate(said or WORKING_TEXT for said in parts):
            if index >= self.shown.streaming_count:
                await self._open_card()
            frame = (part, index == max(len(parts), self.shown.streaming_count) - 1)
            if self._frames.get(index) == frame:
                continue
            if index != growing and not await self._paced(index):
                return False
            if not await self._patch(adapter, index, frame):
                return False
        return True

    async def _open_card(self) -> None:
        body = OutboundText(
            channel=self._row.key.channel,
            reply_target=self._inbound.reply_target,
            markdown=WORKING_TEXT,
            provisional=True,
            buttons=(stop_button(self._row.id, self._words.button_stop),),
        )
        key = streaming_key(self._row, self.shown.streaming_count)
        self._count()
        new = NewOutboxRow(key=key, conversation=self._row.key, body=encode_outbound(body))
        await self._delivery.enqueue(self._row.key, [new])

    async def _is_there(self, index: int) -> bool:
        return await self._delivery.outbox.find(streaming_key(self._row, index)) is not None

    def _count(self) -> None:
        self.shown = replace(self.shown, streaming_count=self.shown.streaming_count + 1)

    async def _paced(self, index: int) -> bool:
        """Wait until a card may be patched; return False when this turn's cards cannot be patched any more."""
        card = await self._delivery.wait_closed(streaming_key(self._row, index))
        if card is None or not card.platform_id:
            return False
        self._ids[index] = MessageId(card.platform_id)
        lane = (f"{self._row.key.channel}:card", card.platform_id)
        await self._delivery.pacer.acquire(lane, self._interval_s)
        return True

    async def _patch(self, adapter: SupportsStreaming, index: int, frame: tuple[str, bool]) -> bool:
        """Bring a card whose time has come up to date; return False when no card can be patched any more."""
        place, interval = self._inbound.reply_target, self._interval_s
        part, is_last = frame
        stop = stop_button(self._row.id, self._words.button_stop)
        buttons = (stop,) if is_last else ()
        started = time.monotonic()
        try:
            # Shielded: a patch that is out must have arrived before the final one is sent after it.
            with anyio.move_on_after(PATCH_DEADLINE_S, shield=True):
                await adapter.update_streaming(
                    place, self._ids[index], part, final=False, buttons=buttons
                )
            self._frames[index] = frame
        except DeliveryError as error:
            key = streaming_key(self._row, index)
            log.info("patch of %s skipped: %s", key, error.user_message)
            self._changed.set()
            spent = time.monotonic() - started
            await anyio.sleep(max(interval, (error.retry_after_s or 0.0) - spent))
            return error.retryable
        return True

    @property
    def _interval_s(self) -> float:
        return self._adapter.capabilities.stream_interval_s


def with_progress(adapter: Adapter, parts: list[str], below: str) -> list[str]:
    """Return the parts with lines below the last one, where they fit: they never cost a further card."""
    if not below:
        return parts
    *before, last = parts
    longer = f"{last}\n\n{below}".strip()
    return [*before, longer] if len(adapter.split(longer)) == 1 else parts


async def _parts(adapter: Adapter, text: str) -> list[str]:
    if len(text) < SPLIT_IN_THREAD_CHARS:
        return list(adapter.split(text))
    return list(await to_thread.run_sync(adapter.split, text))
