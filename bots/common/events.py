"""Results of parsing: events that are not for the bot, and mentions without content, which ask for help."""

from dataclasses import dataclass, replace

from bus.messages import InboundMessage
from bus.platform import Disposition

HELP = "/help"
"""The command that a mention without content stands for."""


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that is not for the bot.

    Attributes:
        detail: A description of the event, for the log.
        reason: Why the event is ignored, for the counters.
    """

    detail: str = ""
    reason: Disposition = Disposition.UNSUPPORTED


def or_help(message: InboundMessage) -> InboundMessage | IgnoredEvent:
    """Turn a group message that only mentions the bot into a request for help. Return other messages unchanged."""
    if message.prompt or message.attachments or message.is_private or not message.is_addressed:
        return message
    if message.sender.is_bot:
        return IgnoredEvent("a mention by a bot", Disposition.EMPTY)
    return replace(message, text=HELP, is_bare_mention=True)
