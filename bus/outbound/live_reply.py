"""What a running turn shows, whatever the platform makes of it: the latest words, read when there is time."""

from collections.abc import Callable

import anyio

from bus.locales.catalog import Messages
from bus.messages import InboundMessage
from bus.outbound.rows import LiveMessages
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter
from store.inbox import InboxRow


class LiveReply:
    """What people see of a turn before its answer; by itself nothing.

    Attributes:
        shown: What people see that the answer has to take over, or away.
    """

    def __init__(self, delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage) -> None:
        self._delivery = delivery
        self._row = row
        self._inbound = inbound
        self._text: Callable[[], str] = str
        self._progress: Callable[[Messages], str] = _nothing
        self._changed = anyio.Event()
        self.shown = LiveMessages()

    def update(
        self, text: Callable[[], str], progress: Callable[[Messages], str] | None = None
    ) -> None:
        """Say that there is more to show; returns at once, what was not shown yet is skipped.

        Both are called when their time has come: putting a text together for every token would make a long
        answer cost the square of its length.

        Args:
            text: Gives what has been said so far.
            progress: Gives lines that stand below it for a while.
        """
        self._text = text
        self._progress = progress or _nothing
        self._changed.set()

    async def open(self) -> None:
        """Show that work begins; after a restart, find what an earlier process showed. Raises StoreError."""

    async def run(self) -> None:
        """Show what changes, until cancelled."""

    @property
    def _is_first(self) -> bool:
        """Whether no earlier process can have shown anything of this turn."""
        return self._row.attempts <= 1

    @property
    def _adapter(self) -> Adapter:
        return self._delivery.adapters[self._row.key.channel]

    @property
    def _words(self) -> Messages:
        return self._inbound.reply_target.texts

    def _below(self) -> str:
        """Return what may stand below the words for a while."""
        return self._progress(self._words) if self._adapter.capabilities.shows_progress else ""


def _nothing(_: Messages) -> str:
    return ""
