"""Progress notice: a message with a stop button for long turns, which the answer removes."""

import anyio
from typing_extensions import override

from bus.outbound.live_reply import LiveReply
from bus.outbound.rows import LiveMessages, notice_key


class ProgressNotice(LiveReply):
    """Shows nothing until a turn has taken `progress_notice_after_s`."""

    @override
    async def find_shown(self) -> None:
        if self.is_first_attempt:
            return
        if await self._store.call(lambda: self._delivery.find_row(self._key)) is not None:
            self.shown = LiveMessages(notice_key=self._key)

    @override
    async def run(self) -> None:
        if self.shown.notice_key:
            return
        await anyio.sleep(self._adapter.capabilities.progress_notice_after_s)
        # Set the key before the row exists, so that a turn that ends now also removes the notice.
        self.shown = LiveMessages(notice_key=self._key)
        await self._show(self._key, self._texts.working)

    @property
    def _key(self) -> str:
        return notice_key(self._row)
