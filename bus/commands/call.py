"""One invocation of a command, and what answers it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bus.locales import Texts
from bus.messages import InboundMessage
from store.inbox import InboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command that somebody sent. `argument` is the text after its name, without outer spaces."""

    argument: str
    row: InboxRow
    inbound: InboundMessage

    @property
    def texts(self) -> Texts:
        """What the bot says to whoever sent it."""
        return self.inbound.place.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An answer that is a text file."""

    name: str
    content: str


Handler = Callable[[Call], Awaitable[str | Document | None]]
"""Returns the answer (Markdown, or a file), or None when a turn was started that will answer."""
