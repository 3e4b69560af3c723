"""Converts Feishu's Markdown, from cards and rich text, to plain Markdown. Pure."""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from bots.feishu.people import People

_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_PAIR = re.compile(
    r"<(at|person|text_tag|link|a|local_datetime|audio)\b([^<>]*)>([^<>]{0,500})</\1>"
)
_ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(?:'([^']*)'|"([^"]*)"|([^\s'"/>]+))""")
_BREAK = re.compile(r"<(br|hr)\s*/?>")
_STYLE = re.compile(r"</?(?:font|number_tag|raw|text_tag|at|person)\b[^<>]*>")
"""Tags that only style their text, and tags that are never closed."""

_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\((img_[\w-]{1,200})\)")
_JOINER = "\u2060"
"""An invisible character that `format.py` inserts into the bot's messages."""


def utc_minute(milliseconds: int | None) -> str:
    """Return a time to the minute; "" = an invalid time.

    >>> utc_minute(1700000000123)
    '2023-11-14 22:13 UTC'
    """
    if milliseconds is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def plain_markdown(text: str, people: People) -> str:
    """Return Feishu's Markdown without tags and entities that are specific to Feishu.

    >>> plain_markdown("<font color='red'>A &lt; B</font> <at id=ou_1></at>", People({"ou_1": "Ann"}))
    'A < B @Ann'
    >>> plain_markdown("`&lt;`", People({}))
    '`&lt;`'
    """
    parts = _CODE.split(text.replace(_JOINER, ""))
    return "".join(
        part if number % 2 else _plain(part, people) for number, part in enumerate(parts)
    )


def image_keys(text: str) -> list[str]:
    """Return the keys of the pictures in Feishu's Markdown.

    >>> image_keys("see ![a](img_1) and `![b](img_2)`")
    ['img_1']
    """
    return [match[2] for part in _CODE.split(text)[::2] for match in _IMAGE.finditer(part)]


def named(what: str, *details: str) -> str:
    """Return a line for something without text.

    >>> named("Image"), named("Location", "Main St 1", "", "1, 2")
    ('[Image]', '[Location: Main St 1, 1, 2]')
    """
    known = ", ".join(detail.strip() for detail in details if detail.strip())
    return f"[{what}: {known}]" if known else f"[{what}]"


def link(url: str, label: str) -> str:
    """Return a Markdown link, or the URL or label alone if the other is missing.

    >>> link("https://a.example", "here"), link("", "here"), link("https://a.example", "")
    ('[here](https://a.example)', 'here', 'https://a.example')
    """
    return f"[{label}]({url})" if url and label and label != url else url or label


def _plain(text: str, people: People) -> str:
    def paired(match: re.Match[str]) -> str:
        return _pair(match[1], _attributes(match[2]), match[3].strip(), people)

    text = _PAIR.sub(paired, text)
    text = _BREAK.sub(lambda match: "\n" if match[1] == "br" else "\n\n---\n", text)
    text = _IMAGE.sub(lambda match: named("Image", match[1]), _STYLE.sub("", text))
    return html.unescape(text)


def _pair(tag: str, attributes: Mapping[str, str], words: str, people: People) -> str:
    match tag:
        case "at" | "person":
            key = attributes.get("mention_key", "")
            ids = attributes.get("ids") or attributes.get("id") or attributes.get("user_id") or ""
            name = words.removeprefix("@") or attributes.get("email", "")
            return key or " ".join(people.mention(user, name) for user in ids.split(",")) or name
        case "text_tag":
            return named(words) if words else ""
        case "local_datetime":
            clock = attributes.get("millisecond", "")
            return utc_minute(int(clock) if re.fullmatch("[0-9]{1,15}", clock) else None) or words
        case "audio":
            return named("Audio")
        case _:
            return link(attributes.get("url") or attributes.get("href") or "", words)


def _attributes(text: str) -> Mapping[str, str]:
    return {match[1]: match[2] or match[3] or match[4] or "" for match in _ATTRIBUTE.finditer(text)}
