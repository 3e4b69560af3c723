"""Markdown for streaming: append-only, with mentions and links made inert. Pure.

A stream can only be added to, so this works from left to right and never looks at what may still come: where the
next character decides, the last one is held back.
"""

import re
from collections.abc import Iterable

from bus.characters import strip_bidi

_JOINER = "\u2060"
"""WORD JOINER: invisible, and no part of any live token."""

_CALLS = ("channel", "here", "everyone", "group")
_TOKENS = ("!channel", "!here", "!everyone", "!group", "!subteam", "!date")

_LIVE = re.compile(
    rf"<(?={'|'.join(_TOKENS)}|[@#][A-Z0-9])|@(?=(?:{'|'.join(_CALLS)})\b)|!(?=\[)|:(?=//)",
    re.IGNORECASE,
)
"""What begins Slack's tokens, names of everybody, images, and addresses: Slack would fetch those for a preview."""


def _beginnings(words: Iterable[str]) -> str:
    """Return a pattern for what the words begin with, themselves included."""
    return "|".join(word[:size] for word in words for size in range(len(word), 0, -1))


_OPEN = re.compile(
    rf"(?<![<@!:])(?<!:/)(?:[<@!]|:/?)*"
    rf"(?:[<@!]|:/?|<[@#]|<(?:{_beginnings(_TOKENS)})|@(?:{_beginnings(_CALLS)}))\Z",
    re.IGNORECASE,
)
"""An end whose meaning the next characters decide. Each run is looked at once, from its beginning."""


def escape_stream_text(markdown: str, *, is_complete: bool = False) -> str:
    r"""Return what may be streamed of a text so far; of a longer text it is a beginning.

    Args:
        markdown: All that was said so far.
        is_complete: Nothing will follow.

    >>> escape_stream_text("see <!channel> and <")
    'see <\u2060!channel> and '
    >>> escape_stream_text("a <", is_complete=True)
    'a <'
    """
    text = strip_bidi(markdown)
    held = text if is_complete else _OPEN.sub("", text)
    return _LIVE.sub(lambda match: match[0] + _JOINER, held)


def strip_progress_lines(markdown: str) -> str:
    r"""Return a growing text without the lines that stand below it for a while (bus/runs/progress.py).

    They are a quotation whose every line ends in a break, which is how they are told apart; a quotation of the
    model's own that looks the same is streamed as soon as anything follows it.

    >>> strip_progress_lines("I look.\n\n> 🔧 `bash` ls  \n> ▫️ then read  ")
    'I look.'
    >>> strip_progress_lines("She said:\n\n> no")
    'She said:\n\n> no'
    """
    lines = markdown.split("\n")
    end = len(lines)
    while end and lines[end - 1].startswith("> ") and lines[end - 1].endswith("  "):
        end -= 1
    if end == len(lines) or (end and lines[end - 1].strip()):
        return markdown
    return "\n".join(lines[:end]).rstrip("\n")
