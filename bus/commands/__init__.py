"""The commands: their names, help texts and parsing. /help and the platforms' command lists are generated from here."""

import re
from dataclasses import dataclass

from bus.locales import LANGUAGES, Messages
from bus.locales.en import ENGLISH
from bus.platform import CommandInfo

COMMAND_NAMES = (
    *("bootstrap", "new", "status", "models", "model", "agent", "skills", "memory", "forget"),
    *("retry", "undo", "export", "stop", "language", "why", "help"),
)
"""Every command, in the order of /help."""

COMMANDS = tuple(
    CommandInfo(
        name=name,
        help=ENGLISH.help(name),
        translations={
            code: texts.help(name) for code, texts in LANGUAGES.items() if texts is not ENGLISH
        },
    )
    for name in COMMAND_NAMES
)
"""Platforms that list commands list these."""

_COMMAND = re.compile(r"\s*/([a-zA-Z0-9_]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A text that is a command."""

    name: str
    argument: str


def parse_command(text: str) -> ParsedCommand | None:
    """Return the command in a text; None for chat, also for paths and unknown words after a slash.

    >>> parse_command("  /Bootstrap  as a reviewer ")
    ParsedCommand(name='bootstrap', argument='as a reviewer')
    >>> [parse_command(text) for text in ("//new", "/mnt/data/x", "/new/x", "/unknown", "new", "/")]
    [None, None, None, None, None, None]
    """
    match = _COMMAND.fullmatch(text)
    if match is None:
        return None
    name = match[1].lower()
    if name not in COMMAND_NAMES:
        return None
    return ParsedCommand(name, (match[2] or "").strip())


def help_text(texts: Messages) -> str:
    """Return the answer to /help."""
    return "\n".join(
        [texts.commands_head, *(f"/{name} — {texts.help(name)}" for name in COMMAND_NAMES)]
    )
