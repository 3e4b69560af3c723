"""The commands: names, help texts and parsing. /help and the platforms' command lists are generated from here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from bus.locales import LANGUAGES, Messages
from bus.locales.en import ENGLISH
from bus.platform import CommandInfo

COMMAND_NAMES = (
    *("bootstrap", "new", "status", "models", "model", "agent", "skills", "memory", "forget"),
    *("usage", "schedule"),
    *("retry", "undo", "export", "stop", "language", "timezone", "why", "help"),
)
"""All commands, in the order of /help."""

_ARGUMENTS = {
    "bootstrap": "[text]",
    "model": "[name]",
    "agent": "[name]",
    "memory": "[page]",
    "forget": "[number | yes]",
    "language": "[en | zh | auto]",
    "timezone": "[Area/City]",
}
"""What /help shows after the names of commands, in every language."""

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
"""The commands for the command lists of platforms."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"
_COMMAND = re.compile(r"\s*/([a-zA-Z0-9_]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A text that is a command.

    Attributes:
        name: One of `COMMAND_NAMES`.
        argument: The text after the name, stripped.
        is_misspelled: Whether the text is one edit away from the name. The person is asked whether they meant it.
    """

    name: str
    argument: str
    is_misspelled: bool = False


def parse_command(text: str) -> ParsedCommand | None:
    """Return the command in a text. None for chat, including paths and unknown words after a slash.

    >>> parse_command("  /Bootstrap  as a reviewer ")
    ParsedCommand(name='bootstrap', argument='as a reviewer', is_misspelled=False)
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


def misspelled_command(text: str, names: Sequence[str] = ()) -> str:
    """Return the command that is one edit away from a text of one word. "" = none, or the text is not one word.

    `names`: the commands to choose from, if not the bot's.

    >>> [misspelled_command(text) for text in ("/modle", " /Hlep ", "/nw", "/modle gpt", "/tmp", "/new", "modle")]
    ['model', 'help', 'new', '', '', '', '']
    """
    match = re.fullmatch(r"\s*/([a-zA-Z0-9_]{2,20})\s*", text)
    word = match[1].lower() if match else ""
    names = names or COMMAND_NAMES
    if not word or word in names:
        return ""
    return next((name for name in names if word in _one_edit_away(name)), "")


def recognize_command(text: str) -> ParsedCommand | None:
    """Return the command in a text, even a misspelled one. None for chat.

    >>> recognize_command("/modle")
    ParsedCommand(name='model', argument='', is_misspelled=True)
    """
    if (command := parse_command(text)) is not None:
        return command
    name = misspelled_command(text)
    return ParsedCommand(name, "", is_misspelled=True) if name else None


@cache
def _one_edit_away(name: str) -> frozenset[str]:
    """Return all words one edit away from a name: a letter added, removed or replaced, or two letters swapped."""
    cuts = [(name[:at], name[at:]) for at in range(len(name) + 1)]
    less = {head + tail[1:] for head, tail in cuts if tail}
    exchanged = {head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1}
    more = {head + letter + tail for head, tail in cuts for letter in _LETTERS}
    other = {head + letter + tail[1:] for head, tail in cuts if tail for letter in _LETTERS}
    return frozenset(less | exchanged | more | other)


def help_text(texts: Messages) -> str:
    """Return the answer to /help."""
    lines = (
        f"{' '.join(filter(None, (f'/{name}', _ARGUMENTS.get(name))))} — {texts.help(name)}"
        for name in COMMAND_NAMES
    )
    return "\n".join([texts.commands_head, *lines])
