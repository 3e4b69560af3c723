"""Rich messages as a Telegram server accepts them (Bot API 10.2: `blocks` of an InputRichMessage)."""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.playground.telegram.chats import Json, TelegramApiError, Wire, mentions

_CHARACTERS = 32_768
_BLOCKS = 500
_LEVELS = 16
_COLUMNS = 20

_FIELDS: Mapping[str, tuple[set[str], set[str]]] = {
    "paragraph": ({"text"}, set()),
    "heading": ({"text", "size"}, set()),
    "pre": ({"text"}, {"language"}),
    "divider": (set(), set()),
    "list": ({"items"}, set()),
    "blockquote": ({"blocks"}, {"credit"}),
    "mathematical_expression": ({"expression"}, set()),
    "details": ({"summary", "blocks"}, {"is_open"}),
    "table": ({"cells"}, {"is_bordered", "is_striped", "is_compact", "caption"}),
}
"""The required and optional fields of blocks by type. Omits types that Parley does not send."""

_ITEM = {"blocks", "value", "type", "has_checkbox", "is_checked"}
_CELL = {"text", "is_header", "colspan", "rowspan", "align", "valign"}
_STYLES = {
    "bold", "italic", "strikethrough", "code", "url", "underline", "spoiler", "subscript", "superscript", "marked",
}  # fmt: skip


def checked_blocks(message: Wire) -> list[Json]:
    """Return the blocks of an InputRichMessage. Raises TelegramApiError if Telegram would refuse it."""
    if not isinstance(message, dict) or not isinstance(message.get("blocks"), list):
        raise _refusal("rich message must have exactly one kind of content")
    if set(message) - {"blocks", "is_rtl", "skip_entity_detection"}:
        raise _refusal("unknown field")
    blocks: list[Json] = message["blocks"]
    if sum(1 for _ in _checked(blocks, 1)) > _BLOCKS:
        raise _refusal("RICH_MESSAGE_BLOCKS_TOO_MANY")
    words = words_of(blocks)
    if not words.strip():
        raise _refusal("message text is empty")
    if len(words) > _CHARACTERS:
        raise _refusal("message is too long")
    return blocks


def names_in(value: Wire) -> list[str]:
    """Return the names that a server turns into mentions: names in text, but not in code, links and formulas."""
    if isinstance(value, str):
        return mentions(value, [])
    if isinstance(value, list):
        return [name for item in value for name in names_in(item)]
    if not isinstance(value, dict) or value.get("type") in {"code", "pre", "url"}:
        return []
    read = ("text", "summary", "blocks", "items", "cells", "caption", "credit")
    return [name for field in read for name in names_in(value.get(field))]


def words_of(blocks: list[Json]) -> str:
    """Return the visible text, with a line for each innermost block."""
    return "\n".join(_words(block) for block in blocks)


def _words(block: Json) -> str:  # noqa: PLR0911 - one return per kind
    match block["type"]:
        case "list":
            return "\n".join(words_of(item["blocks"]) for item in block["items"])
        case "blockquote":
            return words_of(block["blocks"])
        case "details":
            return f"{_plain(block['summary'])}\n{words_of(block['blocks'])}"
        case "mathematical_expression":
            return str(block["expression"])
        case "table":
            rows = block["cells"]
            return "\n".join(
                " | ".join(_plain(cell.get("text", "")) for cell in row) for row in rows
            )
        case "divider":
            return ""
        case _:
            return _plain(block["text"])


def _plain(text: Wire) -> str:
    if isinstance(text, str):
        return text
    if isinstance(text, list):
        return "".join(map(_plain, text))
    if isinstance(text, dict) and text.get("type") == "mathematical_expression":
        return str(text["expression"])
    if not isinstance(text, dict) or text.get("type") not in _STYLES:
        raise _refusal(f"unknown rich text {text!r:.60}")
    if set(text) - {"type", "text"} - ({"url"} if text["type"] == "url" else set()):
        raise _refusal(f"unknown field in rich text {text!r:.60}")
    return _plain(text["text"])


def _checked(blocks: list[Json], level: int) -> Iterator[Any]:
    """Yield everything that counts as a block: blocks, list items, table rows."""
    if level > _LEVELS:
        raise _refusal("RICH_MESSAGE_NESTED_TOO_DEEP")
    for block in blocks:
        needed, allowed = _FIELDS.get(block.get("type", ""), (set(), set()))
        fields = set(block) - {"type"}
        if block.get("type") not in _FIELDS or not needed <= fields <= needed | allowed:
            raise _refusal(f"wrong block {block!r:.80}")
        yield block
        yield from _checked(block.get("blocks", []), level + 1)
        for item in block.get("items", []):
            if set(item) - _ITEM or "blocks" not in item:
                raise _refusal(f"wrong list item {item!r:.80}")
            yield item
            yield from _checked(item["blocks"], level + 1)
        for row in block.get("cells", []):
            if len(row) > _COLUMNS or any(_wrong(cell) for cell in row):
                raise _refusal("wrong table row")
            yield row


def _wrong(cell: Json) -> bool:
    aligned = cell.get("align") in {"left", "center", "right"}
    return (
        bool(set(cell) - _CELL)
        or not aligned
        or cell.get("valign") not in {"top", "middle", "bottom"}
    )


def _refusal(why: str) -> TelegramApiError:
    return TelegramApiError(400, f"Bad Request: {why}")
