"""The result of parsing an event that adapters hand over to nobody."""

from dataclasses import dataclass, replace

from bus.messages import InboundMessage
from bus.platform import Disposition

HELP = "/help"
"""What somebody means who mentions the bot and says nothing."""


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that is not for the bot.

    Attributes:
        detail: What it is, for the log.
        reason: Why it is ignored, for the counts.
    """

    detail: str = ""
    reason: Disposition = Disposition.UNSUPPORTED


def or_help(message: InboundMessage) -> InboundMessage | IgnoredEvent:
    """Return a message; in a group, a mention with nothing that it may be about asks for help."""
    if message.prompt or message.attachments or message.is_private or not message.is_addressed:
        return message
    if message.sender.is_bot:
        return IgnoredEvent("a mention by a bot", Disposition.EMPTY)
    return replace(message, text=HELP, is_bare_mention=True)
