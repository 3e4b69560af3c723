"""Streaming messages: a reply that grows in place, with a rate limit, independent of the stream's reader."""

import logging
import time
from dataclasses import replace

import anyio
from typing_extensions import override

from bus.errors import DeliveryError
from bus.messages import MessageId
from bus.outbound.live_reply import LiveReply
from bus.outbound.rows import streaming_key
from bus.outbound.split import split_text
from bus.platform import Adapter, SupportsStreaming

log = logging.getLogger(__name__)

WORKING_TEXT = "…"
"""Text of a streaming message before the first word."""

PATCH_DEADLINE_S = 8.0
"""Time limit of one patch, seconds. The next one, or the final text, replaces a lost one."""


class StreamingMessage(LiveReply):
    """Messages that grow until they are the answer. The last one has a stop button."""

    _patches: dict[int, tuple[str, bool]]
    _ids: dict[int, MessageId]

    @override
    async def find_shown(self) -> None:
        self._patches, self._ids = {}, {}
        while not self.is_first_attempt and await self._exists(self.shown.streaming_count):
            self._count()
        if self.shown.streaming_count:
            self._note_doubt()  # an earlier process may have sent edits

    @override
    async def open(self) -> None:
        if self.shown.streaming_count == 0:
            await self._open_message()

    @override
    async def run(self) -> None:
        adapter = self._adapter
        if not isinstance(adapter, SupportsStreaming):
            return
        while True:
            await self._changed.wait()
            last = self.shown.streaming_count - 1
            if not await self._wait_for_slot(last) or not await self._patch_all(adapter, last):
                return

    async def _patch_all(self, adapter: SupportsStreaming, ready: int) -> bool:
        """Update all messages, the one with index `ready` without waiting. False = patch no more."""
        # Read the text only now, so that it includes text from while the message waited for its slot.
        self._changed = anyio.Event()
        answer = self._text()
        self.shows_answer = self.shows_answer or bool(answer)
        parts = await split_text(self._adapter, answer)
        parts = await add_progress(self._adapter, parts, self._progress_lines())
        # An empty message looks broken, and between two tool calls there may be no text yet.
        for index, part in enumerate(text or WORKING_TEXT for text in parts):
            if index >= self.shown.streaming_count:
                await self._open_message()
            patch = (part, index == max(len(parts), self.shown.streaming_count) - 1)
            if self._patches.get(index) == patch:
                continue
            if index != ready and not await self._wait_for_slot(index):
                return False
            if not await self._patch(adapter, index, patch):
                return False
        return True

    async def _open_message(self) -> None:
        key = streaming_key(self._row, self.shown.streaming_count)
        # Count it before the row exists, so that a turn that ends now also replaces this message.
        self._count()
        await self._show(key, WORKING_TEXT)

    async def _exists(self, index: int) -> bool:
        key = streaming_key(self._row, index)
        return await self._store.call(lambda: self._delivery.find_row(key)) is not None

    def _count(self) -> None:
        self.shown = replace(self.shown, streaming_count=self.shown.streaming_count + 1)

    def _note_doubt(self) -> None:
        self.shown = replace(self.shown, edit_in_doubt=True)

    async def _wait_for_slot(self, index: int) -> bool:
        """Wait until a message may be patched. Return False if it cannot be patched at all."""
        key = streaming_key(self._row, index)
        row = await self._store.call(lambda: self._delivery.wait_closed(key))
        if row is None or not row.platform_id:
            return False
        self._ids[index] = MessageId(row.platform_id)
        limited = (f"{self._row.key.channel}:streaming", row.platform_id)
        await self._delivery.wait_for_slot(limited, self._interval_s)
        return True

    async def _patch(self, adapter: SupportsStreaming, index: int, patch: tuple[str, bool]) -> bool:
        """Patch one message now. Return False if the platform accepts no more patches of this turn."""
        part, is_last = patch
        buttons = (self._stop_button,) if is_last else ()
        await self._delivery.wait_until_owner()
        started = time.monotonic()
        try:
            # Shielded, so that a patch in flight arrives before the final text is sent.
            with anyio.move_on_after(PATCH_DEADLINE_S, shield=True) as deadline:
                await adapter.update_streaming(
                    self._inbound.reply_target, self._ids[index], part, final=False, buttons=buttons
                )
            self._patches[index] = patch
            if deadline.cancelled_caught:
                self._note_doubt()
        except DeliveryError as error:
            if error.ambiguous:
                self._note_doubt()
            key = streaming_key(self._row, index)
            log.info("patch of %s skipped: %s", key, error.user_message)
            self._changed.set()
            spent_s = time.monotonic() - started
            await anyio.sleep(max(self._interval_s, (error.retry_after_s or 0.0) - spent_s))
            return error.retryable
        return True

    @property
    def _interval_s(self) -> float:
        return self._adapter.capabilities.stream_interval_s


async def add_progress(adapter: Adapter, parts: list[str], progress: str) -> list[str]:
    """Append progress lines to the last part if they fit. They never start another message."""
    if not progress:
        return parts
    *before, last = parts
    longer = f"{last}\n\n{progress}".strip()
    return [*before, longer] if len(await split_text(adapter, longer)) == 1 else parts
