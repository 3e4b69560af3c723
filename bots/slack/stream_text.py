"""Prepares Markdown for append-only streaming, with inactive mentions and links. Pure.

A stream is append-only, so the text is processed from left to right. If the meaning of the last character depends on
the next one, the last character is held back.
"""

import re
from collections.abc import Iterable

from bus.characters import strip_bidi

_JOINER = "\u2060"
"""WORD JOINER: invisible, and not part of any active token."""

_CALLS = ("channel", "here", "everyone", "group")
_TOKENS = ("!channel", "!here", "!everyone", "!group", "!subteam", "!date")

_LIVE = re.compile(
    rf"<(?={'|'.join(_TOKENS)}|[@#][A-Z0-9])|@(?=(?:{'|'.join(_CALLS)})\b)|!(?=\[)|:(?=//)",
    re.IGNORECASE,
)
"""Beginnings of Slack's tokens, mentions of everyone, images, and URLs, which Slack would fetch for a preview."""


def _beginnings(words: Iterable[str]) -> str:
    """Return a pattern for all beginnings of the words, including the whole words."""
    return "|".join(word[:size] for word in words for size in range(len(word), 0, -1))


_OPEN = re.compile(
    rf"(?<![<@!:])(?<!:/)(?:[<@!]|:/?)*"
    rf"(?:[<@!]|:/?|<[@#]|<(?:{_beginnings(_TOKENS)})|@(?:{_beginnings(_CALLS)}))\Z",
    re.IGNORECASE,
)
"""The end of a text whose meaning depends on the next characters. Each run is examined once, from its beginning."""


def escape_stream_text(markdown: str, *, is_complete: bool = False) -> str:
    r"""Return the part of an unfinished text that can already be streamed.

    If the text grows, the new result begins with the old one.

    Args:
        markdown: The text so far.
        is_complete: Whether nothing will follow.

    >>> escape_stream_text("see <!channel> and <")
    'see <\u2060!channel> and '
    >>> escape_stream_text("a <", is_complete=True)
    'a <'
    """
    text = strip_bidi(markdown)
    held = text if is_complete else _OPEN.sub("", text)
    return _LIVE.sub(lambda match: match[0] + _JOINER, held)


def strip_progress_lines(markdown: str) -> str:
    r"""Return a growing text without the temporary lines below it (bus/runs/progress.py).

    These lines are a quotation in which every line ends with a line break. If the model writes a quotation that looks
    the same, it is streamed as soon as text follows it.

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
