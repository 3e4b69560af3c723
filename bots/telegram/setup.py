"""What a bot says to Telegram when it comes up, and how it waits when that fails."""

import logging
from collections.abc import Sequence

from telegram import Bot, BotCommand
from telegram.error import InvalidToken, TelegramError

from bots.telegram.api import TelegramTimeouts
from bots.telegram.errors import cause_name
from bots.telegram.mentions import TelegramIdentity
from bus.platform import CommandInfo

_LOG = logging.getLogger(__name__)

_COMMANDS = 100
"""Most commands a bot can list (Bot API: setMyCommands)."""

_HELP_CHARACTERS = 256
"""Longest description of a command (Bot API: BotCommand)."""


class Backoff:
    """Waits that double from one failure to the next."""

    def __init__(self, timing: TelegramTimeouts) -> None:
        self._timing = timing
        self._failures = 0

    def clear(self) -> None:
        """Begin at the shortest wait again: things work."""
        self._failures = 0

    def next_s(self) -> float:
        """Return how long to wait after one more failure, seconds."""
        wait = min(self._timing.retry_min_s * 2.0**self._failures, self._timing.retry_max_s)
        self._failures = min(self._failures + 1, 30)
        return wait


async def get_identity(bot: Bot) -> TelegramIdentity:
    """Ask who we are. Raises TelegramError."""
    user = await bot.get_me()
    return TelegramIdentity(user_id=user.id, username=user.username or "")


async def register_commands(bot: Bot, commands: Sequence[CommandInfo]) -> bool:
    """List the commands for Telegram's apps, in every language; return whether it was done.

    Raises:
        InvalidToken: the only failure that concerns more than the list.
    """
    languages = sorted({code for command in commands for code in command.translations})
    try:
        await bot.set_my_commands(_listed(commands, ""))
        for code in languages:
            await bot.set_my_commands(_listed(commands, code), language_code=code)
    except InvalidToken:
        raise
    except TelegramError as error:
        _LOG.warning("telegram: the command list was not taken: %s", cause_name(error))
        return False
    return True


def _listed(commands: Sequence[CommandInfo], language: str) -> list[BotCommand]:
    return [
        BotCommand(
            command.name,
            command.translations.get(language, command.help)[:_HELP_CHARACTERS],
        )
        for command in commands[:_COMMANDS]
    ]
