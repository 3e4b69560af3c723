"""The result of parsing an event that adapters hand over to nobody."""

from dataclasses import dataclass

from bus.platform import Disposition


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that is not for the bot.

    Attributes:
        detail: What it is, for the log.
        reason: Why it is ignored, for the counts.
    """

    detail: str = ""
    reason: Disposition = Disposition.UNSUPPORTED
