"""What is being written, shown without being sent: nothing of it has to be kept, or taken away."""

import logging

import anyio
from typing_extensions import override

from bus.buttons import stop_button
from bus.errors import DeliveryError
from bus.outbound.live_reply import LiveReply
from bus.outbound.streaming_message import SPLIT_IN_THREAD_CHARS, with_progress
from bus.platform import SupportsDrafts as Platform

log = logging.getLogger(__name__)

KEEPALIVE_S = 20.0
"""How often an unchanged preview is repeated: Telegram's last 30 s."""

PREVIEW_DEADLINE_S = 8.0


class DraftReply(LiveReply):
    """A turn whose answer can be read while it is written, and is sent when it is finished."""

    @override
    async def run(self) -> None:
        platform = self._adapter
        if not isinstance(platform, Platform):
            return
        lane = (f"{self._row.key.channel}:preview", self._inbound.reply_target.chat)
        interval_s = self._adapter.capabilities.draft_interval_s
        while True:
            await self._delivery.pacer.acquire(lane, interval_s)
            self._changed = anyio.Event()
            if not await self._preview(platform):
                return
            with anyio.move_on_after(KEEPALIVE_S):
                await self._changed.wait()

    async def _preview(self, platform: Platform) -> bool:
        """Show the text so far; return False where that is of no use any more."""
        text = self._text()
        # A preview is one message: of a long answer it shows the end, which is what grows.
        parts = [text] if len(text) < SPLIT_IN_THREAD_CHARS else [text[-SPLIT_IN_THREAD_CHARS:]]
        shown = list(self._adapter.split(parts[0]))[-1:]
        said = with_progress(self._adapter, shown, self._below())[0]
        stop = stop_button(self._row.id, self._words.button_stop)
        try:
            with anyio.move_on_after(PREVIEW_DEADLINE_S):
                await platform.send_draft(
                    self._inbound.reply_target, said, key=f"{self._row.id}:preview", stop=stop
                )
        except DeliveryError as error:
            log.info("preview of turn %s skipped: %s", self._row.id, error.user_message)
            if not error.retryable:
                return False
            await anyio.sleep(error.retry_after_s or KEEPALIVE_S / 4)
        return True
