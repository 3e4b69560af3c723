"""Drafts: shows the answer while the agent writes it, without sending a message."""

import logging

import anyio
from typing_extensions import override

from bus.errors import DeliveryError
from bus.outbound.live_reply import LiveReply
from bus.outbound.split import split_text
from bus.outbound.streaming_message import add_progress
from bus.platform import SupportsDrafts

log = logging.getLogger(__name__)

KEEPALIVE_S = 20.0
"""How often to repeat an unchanged draft, seconds. Telegram shows a draft for 30 s."""

DRAFT_DEADLINE_S = 8.0
"""Time limit of one draft, seconds. The next one replaces a lost one."""


DRAFT_CHARS = 4000
"""Maximum length of a draft, characters. Of a longer answer, it shows the end."""


class DraftReply(LiveReply):
    """Shows the text so far as a draft. The finished answer is sent as a message."""

    @override
    async def run(self) -> None:
        adapter = self._adapter
        if not isinstance(adapter, SupportsDrafts):
            return
        limited = (f"{self._row.key.channel}:preview", self._inbound.reply_target.chat)
        interval_s = self._adapter.capabilities.draft_interval_s
        while True:
            await self._delivery.wait_for_slot(limited, interval_s)
            self._changed = anyio.Event()
            if not await self._send_draft(adapter):
                return
            with anyio.move_on_after(KEEPALIVE_S):
                await self._changed.wait()

    async def _send_draft(self, adapter: SupportsDrafts) -> bool:
        """Show the text so far. Return False if the platform shows no more drafts of this turn."""
        # A draft is one message, so it shows only the end of a long answer.
        text = self._text()
        self.shows_answer = self.shows_answer or bool(text)
        end = (await split_text(self._adapter, text[-DRAFT_CHARS:]))[-1:]
        draft = (await add_progress(self._adapter, end, self._progress_lines()))[0]
        await self._delivery.wait_until_owner()
        try:
            with anyio.move_on_after(DRAFT_DEADLINE_S):
                await adapter.send_draft(
                    self._inbound.reply_target,
                    draft,
                    key=f"{self._row.id}:preview",
                    stop=self._stop_button,
                )
        except DeliveryError as error:
            log.info("draft of turn %s skipped: %s", self._row.id, error.user_message)
            if not error.retryable:
                return False
            await anyio.sleep(error.retry_after_s or KEEPALIVE_S / 4)
        return True
