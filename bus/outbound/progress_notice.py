"""A working message for turns that take long: it has the stop button, and goes when the answer comes."""

import anyio
from typing_extensions import override

from bus.buttons import stop_button
from bus.messages import OutboundText, encode_outbound
from bus.outbound.live_reply import LiveReply
from bus.outbound.rows import LiveMessages, notice_key
from store.outbox import NewOutboxRow


class ProgressNotice(LiveReply):
    """A turn that shows nothing, until it has taken so long that people want to know."""

    @override
    async def open(self) -> None:
        """Find the notice of an earlier process."""
        if not self._is_first and await self._delivery.outbox.find(self._key) is not None:
            self.shown = LiveMessages(notice_key=self._key)

    @override
    async def run(self) -> None:
        if self.shown.notice_key:
            return
        await anyio.sleep(self._adapter.capabilities.progress_notice_after_s)
        body = OutboundText(
            channel=self._row.key.channel,
            reply_target=self._inbound.reply_target,
            markdown=self._words.working,
            provisional=True,
            buttons=(stop_button(self._row.id, self._words.button_stop),),
        )
        new = NewOutboxRow(key=self._key, conversation=self._row.key, body=encode_outbound(body))
        # Noted before it is owed: a turn that ends just now takes it away as well.
        self.shown = LiveMessages(notice_key=self._key)
        await self._delivery.enqueue(self._row.key, [new])

    @property
    def _key(self) -> str:
        return notice_key(self._row)
