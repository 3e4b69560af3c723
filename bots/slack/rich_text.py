"""Converts Slack's rich text to Markdown with marks for mentions (mentions.py). Pure.

The elements: docs.slack.dev/reference/block-kit/blocks/rich-text-block. Slack's composer uses this form.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bots.slack.mentions import channel_mark, mention_mark, plain
from bots.slack.mrkdwn_parser import date_words
from bots.slack.payload import as_list, as_mapping, as_str

_INDENT = "    "
_MOST_NESTED = 5
"""Maximum nesting of list objects to read. Slack itself uses indents instead of nesting."""

_MOST_INDENTED = 8
"""Maximum indent of Slack's lists."""

_EDGES = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)
_TICKS = re.compile(r"`+")
_STYLES = (("bold", "**"), ("italic", "*"), ("strike", "~~"))
_ID_FIELDS = {
    "user": "user_id",
    "canvas_user_mention": "user_id",
    "usergroup": "usergroup_id",
    "team": "team_id",
}
_BOXES = {"checked": "- [x] ", "unchecked": "- [ ] "}


def unreadable(kind: str, what: str) -> str:
    """Return the text for an unknown element.

    >>> unreadable("hologram", "block")
    '[Not readable here: a hologram block]'
    """
    name = " ".join(plain(kind).split())[:100]
    return f"[Not readable here: a {name or 'nameless'} {what}]"


def read_rich_text(block: Mapping[str, Any]) -> str:
    """Return a `rich_text` object as Markdown."""
    return _lines(map(as_mapping, as_list(block.get("elements"))))


def _lines(elements: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(filter(None, map(_paragraph, elements)))


def _paragraph(element: Mapping[str, Any], depth: int = 0) -> str:  # noqa: PLR0911 - one return per kind
    match as_str(element.get("type")):
        case "rich_text_section":
            return _inlines(element).removesuffix("\n")
        case "rich_text_list":
            return _listing(element, depth + 1)
        case "rich_text_quote":
            return "\n".join(f"> {line}".rstrip() for line in _inlines(element).split("\n"))
        case "rich_text_preformatted":
            return fenced(_code(element), plain(as_str(element.get("language"))))
        case "rich_text_header":
            return f"**{as_str(as_mapping(element.get('text')).get('text')) or _inlines(element)}**"
        case "rich_text_divider":
            return "---"
        case _:
            return _inlines({"elements": [element]})


def fenced(code: str, language: str = "") -> str:
    """Return a code block with a fence that is longer than any inside it."""
    longest = max((len(ticks) for ticks in _TICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{' '.join(language.split())}\n{code.removesuffix(chr(10))}\n{fence}"


def _code(element: Mapping[str, Any]) -> str:
    parts = map(as_mapping, as_list(element.get("elements")))
    return "".join(plain(as_str(part.get("text")) or as_str(part.get("url"))) for part in parts)


def _listing(element: Mapping[str, Any], depth: int) -> str:
    if depth > _MOST_NESTED:
        return unreadable("deeply nested", "list")
    style = as_str(element.get("style"))
    margin = _INDENT * min(_number(element.get("indent")), _MOST_INDENTED)
    first = _number(element.get("offset")) + 1
    lines: list[str] = []
    for index, item in enumerate(map(as_mapping, as_list(element.get("elements")))):
        marker = f"{first + index}. " if style == "ordered" else _BOXES.get(style, "- ")
        head, *rest = _paragraph(item, depth).split("\n")
        lines += [f"{margin}{marker}{head}", *(f"{margin}{_INDENT}{line}" for line in rest)]
    return "\n".join(lines)


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**6 else 0


def _inlines(element: Mapping[str, Any]) -> str:
    """Return inline elements as one text. Neighbors with the same style share their marks."""
    parts = [as_mapping(part) for part in as_list(element.get("elements"))]
    return "".join(
        _styled("".join(map(_inline, group)), style) for style, group in groupby(parts, _style)
    )


def _style(part: Mapping[str, Any]) -> Sequence[str]:
    if as_str(part.get("type")) in {"user", "broadcast"}:
        return ()  # The style of a mention is ignored.
    style = as_mapping(part.get("style"))
    code = ("`",) if style.get("code") is True else ()
    return (*code, *(sign for name, sign in _STYLES if style.get(name) is True))


def _styled(text: str, signs: Sequence[str]) -> str:
    if not signs or not text.strip():
        return text
    found = _EDGES.fullmatch(text)
    before, words, after = found.groups() if found else ("", text, "")
    for sign in signs:
        words = _code_word(words) if sign == "`" else f"{sign}{words}{sign}"
    return f"{before}{words}{after}"


def _code_word(text: str) -> str:
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    sign = "`" * (longest + 1)
    gap = " " if longest else ""
    return f"{sign}{gap}{text}{gap}{sign}"


def _inline(part: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one return per kind
    match as_str(part.get("type")):
        case "text":
            return plain(as_str(part.get("text")))
        case "emoji":
            return _emoji(part)
        case "user" | "canvas_user_mention" | "usergroup" | "team" as kind:
            return mention_mark(as_str(part.get(_ID_FIELDS[kind])))
        case "channel":
            return channel_mark(as_str(part.get("channel_id")))
        case "broadcast":
            return f"@{plain(as_str(part.get('range')))}"
        case "date":
            return _link(
                part, date_words(part.get("timestamp"), plain(as_str(part.get("fallback"))))
            )
        case "color":
            return plain(as_str(part.get("value")))
        case kind:
            return _link(part, _label(part) or _reference(part)) or unreadable(kind, "element")


def _reference(part: Mapping[str, Any]) -> str:
    """Return the target of an element without text; "" = unknown."""
    match as_str(part.get("type")):
        case "message_mention" | "canvas_message_unfurl":
            return _message(part)
        case "canvas" | "file" | "list_record" as kind:
            return f"{kind.partition('_')[0]} {plain(as_str(part.get('file_id')))}"
        case "salesforce_data_field":
            return _salesforce(part)
        case _:
            return ""


def _label(part: Mapping[str, Any]) -> str:
    return plain(as_str(part.get("text")) or as_str(part.get("label")))


def _link(part: Mapping[str, Any], label: str) -> str:
    url = plain(as_str(part.get("url")))
    address = url.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in {address, address.partition("://")[2]}:
        return address or label
    return f"[{label}]({url})" if url else label


def _message(part: Mapping[str, Any]) -> str:
    channel = as_str(part.get("channel_id")) or as_str(part.get("root_message_channel"))
    author = as_str(part.get("author_id"))
    by = f" by {mention_mark(author)}" if author else ""
    return f"a message{by} in {channel_mark(channel)}"


def _salesforce(part: Mapping[str, Any]) -> str:
    names = ("salesforce_field_label", "salesforce_field_api_name")
    field = next(filter(None, (plain(as_str(part.get(name))) for name in names)), "")
    record = plain(as_str(part.get("salesforce_record_id")))
    return " ".join(filter(None, ("Salesforce", record, field)))


def _emoji(part: Mapping[str, Any]) -> str:
    """Return the characters of an emoji, or the name of a custom emoji."""
    try:
        points = [int(point, 16) for point in as_str(part.get("unicode")).split("-")]
        return plain("".join(map(chr, points))) if points else ""
    except (ValueError, OverflowError):
        return f":{plain(as_str(part.get('name')))}:"
