"""Base class of live replies: shows the latest text, which it reads when it can show it."""

from collections.abc import Callable

import anyio

from bus.buttons import stop_button
from bus.errors import decoration
from bus.locales import Messages
from bus.messages import Button, InboundMessage, OutboundText, encode_outbound
from bus.outbound.rows import LiveMessages
from bus.outbound.worker import DeliveryWorker
from bus.platform import Adapter
from bus.retry import StoreRetry
from store.inbox import InboxRow
from store.outbox import NewOutboxRow


class LiveReply:
    """Shows a turn before its answer. The base class shows nothing.

    Attributes:
        shown: The messages that the answer must replace or remove.
        shows_answer: Whether people see words of the answer.
    """

    def __init__(self, delivery: DeliveryWorker, row: InboxRow, inbound: InboundMessage) -> None:
        self._delivery = delivery
        self._row = row
        self._inbound = inbound
        self._store = StoreRetry(f"live reply of turn {row.id}")
        self._text: Callable[[], str] = str
        self._progress: Callable[[Messages], str] = _nothing
        self._changed = anyio.Event()
        self.shown = LiveMessages()
        self.shows_answer = False

    def update(
        self, text: Callable[[], str], progress: Callable[[Messages], str] | None = None
    ) -> None:
        """Announce newer text. Returns at once. Text that was not shown yet is skipped.

        Both functions are called only when their text can be shown. Building the text for every token would take
        quadratic time.

        Args:
            text: Returns the text so far.
            progress: Returns lines to show temporarily below it.
        """
        self._text = text
        self._progress = progress or _nothing
        self._changed.set()

    async def find_shown(self) -> None:
        """Find what an earlier process showed. Waits while the store is unavailable."""

    async def open(self) -> None:
        """Show that work starts, unless it is shown. Waits while the store is unavailable."""

    async def wait_for_words(self) -> None:
        """Wait until there are words of the answer to show, or an earlier process showed any."""
        while not (self.shown.exist or self._text()):
            await self._changed.wait()
            self._changed = anyio.Event()
        self._changed.set()

    async def run(self) -> None:
        """Show changes until cancelled."""

    async def run_safely(self) -> None:
        """Call `run`. An error ends only the live reply."""
        with decoration(f"live reply of turn {self._row.id}"):
            await self.run()

    async def _show(self, key: str, text: str) -> None:
        """Enqueue a message with a stop button, which the answer replaces or removes."""
        body = OutboundText(
            channel=self._row.key.channel,
            reply_target=self._inbound.reply_target,
            markdown=text,
            provisional=True,
            buttons=(self._stop_button,),
        )
        new = NewOutboxRow(key=key, conversation=self._row.key, body=encode_outbound(body))
        await self._store.call(lambda: self._delivery.enqueue(self._row.key, [new]))

    @property
    def _stop_button(self) -> Button:
        return stop_button(self._row.id, self._texts.button_stop)

    @property
    def is_first_attempt(self) -> bool:
        """Whether no earlier process can have shown anything of this turn.

        Edits count too, because they reset the starts.
        """
        return self._row.starts <= 1 and not self._inbound.edit_count

    @property
    def _adapter(self) -> Adapter:
        return self._delivery.adapter(self._row.key.channel)

    @property
    def _texts(self) -> Messages:
        return self._inbound.reply_target.texts

    def _progress_lines(self) -> str:
        """Return the lines to show temporarily below the text."""
        return self._progress(self._texts) if self._adapter.capabilities.shows_progress else ""


def _nothing(_: Messages) -> str:
    return ""
