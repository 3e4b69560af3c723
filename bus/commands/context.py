"""The context of a command, and the types of its answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bus.locales import Messages
from bus.messages import Button, InboundMessage
from store.inbox import InboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """A command that a person sent. `argument` is the text after its name, stripped."""

    argument: str
    row: InboxRow
    inbound: InboundMessage

    @property
    def texts(self) -> Messages:
        """The messages in the sender's language."""
        return self.inbound.reply_target.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDocument:
    """An answer as a text file."""

    name: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """An answer in Markdown with buttons, which are shown on platforms that have buttons."""

    text: str
    buttons: tuple[Button, ...] = ()


CommandHandler = Callable[[CommandContext], Awaitable[str | CommandReply | CommandDocument | None]]
"""Returns the answer (Markdown or a file), or None if a turn was started that answers."""
