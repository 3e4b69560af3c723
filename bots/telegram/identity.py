"""The bot's identity on Telegram."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramIdentity:
    """The bot account, from getMe.

    Attributes:
        channel: Instance name of the adapter.
    """

    user_id: int
    username: str
    channel: str = "telegram"


NOBODY = TelegramIdentity(user_id=0, username="")
"""Identity for reading texts that do not address the bot. Keeps the bot's name in them."""
