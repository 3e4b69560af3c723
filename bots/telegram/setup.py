"""Setup at the start of a connection: gets the bot's identity, and registers its commands."""

import logging
from collections.abc import Sequence

from telegram import Bot, BotCommand
from telegram.error import InvalidToken, TelegramError

from bots.telegram.errors import cause_name
from bots.telegram.identity import TelegramIdentity
from bus.platform import CommandInfo

log = logging.getLogger(__name__)

_MAX_COMMANDS = 100
"""Maximum number of commands (Bot API: setMyCommands)."""

_MAX_HELP_CHARS = 256
"""Maximum length of a command's description, characters (Bot API: BotCommand)."""


async def get_identity(bot: Bot, channel: str) -> TelegramIdentity:
    """Return the bot's identity. Raises TelegramError."""
    user = await bot.get_me()
    return TelegramIdentity(channel=channel, user_id=user.id, username=user.username or "")


async def register_commands(bot: Bot, commands: Sequence[CommandInfo]) -> bool:
    """Register the commands with Telegram, in every language. Return whether Telegram accepted them.

    Raises:
        InvalidToken: The token is invalid, so no other call can succeed either.
    """
    languages = sorted({code for command in commands for code in command.translations})
    try:
        await bot.set_my_commands(_bot_commands(commands, ""))
        for code in languages:
            await bot.set_my_commands(_bot_commands(commands, code), language_code=code)
    except InvalidToken:
        raise
    except TelegramError as error:
        log.warning("telegram: setMyCommands was refused: %s", cause_name(error))
        return False
    return True


def _bot_commands(commands: Sequence[CommandInfo], language: str) -> list[BotCommand]:
    return [
        BotCommand(command.name, command.translations.get(language, command.help)[:_MAX_HELP_CHARS])
        for command in commands[:_MAX_COMMANDS]
    ]
