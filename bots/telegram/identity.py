"""Who the bot is on Telegram."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramIdentity:
    """The bot account, as getMe returns it.

    Attributes:
        channel: Instance name of the adapter.
    """

    user_id: int
    username: str
    channel: str = "telegram"


NOBODY = TelegramIdentity(user_id=0, username="")
"""Reads words that are not addressed to the bot: its name stays in them."""
