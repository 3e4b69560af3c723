"""Checks requests to Slack against the method table, `methods.json`, and Slack's limits of blocks."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

METHODS_FILE = Path(__file__).with_name("methods.json")

JSON_ARGUMENTS = frozenset({"attachments", "blocks", "files", "metadata"})
_BY_CLIENT = frozenset({"token", "team_id"})
_LIVE = re.compile(r"<(![a-z]|@[UW]|#C)", re.IGNORECASE)
_SECTION_TEXT, _MARKDOWN_TEXT, _ALL_TEXT, _BLOCKS, _TEXT = 3_000, 12_000, 13_200, 50, 40_000
_ROWS, _COLUMNS, _TABLE_TEXT = 100, 20, 10_000
_ELEMENTS, _LABEL, _ID, _VALUE = 25, 75, 255, 2_000
_INDENT = 8


def load_methods() -> dict[str, Any]:
    """Return the method table."""
    table: dict[str, Any] = json.loads(METHODS_FILE.read_text())
    return table


def check_arguments(
    method: Mapping[str, Any], arguments: Mapping[str, Any], *, is_json: bool
) -> Iterator[str]:
    """List every argument that is missing, unknown or of the wrong type."""
    schema = method["args"]
    for name in schema.get("required", ()):
        if name != "token" and arguments.get(name) is None:
            yield f"missing argument {name}"
    for name, value in arguments.items():
        if name not in schema["properties"]:
            if name not in _BY_CLIENT:
                yield f"unknown argument {name}"
        elif not _fits(schema["properties"][name], name, value, is_json=is_json):
            yield f"argument {name} has the wrong type: {type(value).__name__}"
    if is_json and not method.get("json_input_supported"):
        yield "takes no JSON"


def _fits(schema: Mapping[str, Any], name: str, value: object, *, is_json: bool) -> bool:
    kinds = {part.get("type") for part in schema.get("anyOf", [schema])}
    if not is_json:
        numbers = kinds & {"integer", "number"} and not kinds & {"string"}
        return re.fullmatch(r"-?\d+(\.\d+)?", str(value)) is not None if numbers else True
    if name in JSON_ARGUMENTS:
        return isinstance(value, list | dict)
    allowed = {"string": str, "boolean": bool, "integer": int, "number": int | float, "array": list}
    return None in kinds or any(
        isinstance(value, allowed[kind]) for kind in kinds if kind in allowed
    )


def block_error(blocks: list[dict[str, Any]]) -> str:  # noqa: PLR0911 - one return per rule
    """Return Slack's error for a message's blocks, or ""."""
    items = sum(_items(block) for block in blocks)
    if items > _BLOCKS or any(map(_is_malformed, blocks)):
        return "invalid_blocks"
    if sum(block.get("type") in {"table", "data_table"} for block in blocks) > 1:
        return "invalid_attachments"
    sizes = [len(_block_text(block)) for block in blocks]
    markdown = sum(
        size for block, size in zip(blocks, sizes, strict=True) if block.get("type") == "markdown"
    )
    if markdown > _MARKDOWN_TEXT:
        return "msg_too_long"
    if any(
        size > _SECTION_TEXT
        for block, size in zip(blocks, sizes, strict=True)
        if block.get("type") == "section"
    ):
        return "invalid_blocks"
    if any(not block.get("type") or (not size and block["type"] == "markdown")
           for block, size in zip(blocks, sizes, strict=True)):  # fmt: skip
        return "invalid_blocks"
    return "msg_blocks_too_long" if sum(sizes) > _ALL_TEXT else ""


def text_findings(text: str, blocks: list[dict[str, Any]]) -> Iterator[str]:
    """List requests that Slack would accept but a bot should not send."""
    if blocks and not text:
        yield "blocks without a fallback text"
    if len(text) > _TEXT:
        yield f"text of {len(text)} characters would be cut"
    # The text of tables and of rich text is literal.
    literal = {"table", "rich_text"}
    for shown in (text, *(_block_text(b) for b in blocks if b.get("type") not in literal)):
        if live := _LIVE.search(shown):
            yield f"live token {live.group()}"


def _items(block: Mapping[str, Any]) -> int:
    if block.get("type") != "markdown":
        return 1
    lines = str(block.get("text")).splitlines()
    return 1 + sum(bool(re.match(r"#{1,6} |---+$|\*\*\*+$", line)) for line in lines)


def _is_malformed(block: Mapping[str, Any]) -> bool:
    match block.get("type"):
        case "table":
            return _is_bad_table(block)
        case "rich_text":
            return _is_bad_rich_text(block)
        case "actions":
            return _are_bad_buttons(block.get("elements") or [])
        case _:
            return False


def _is_bad_table(block: Mapping[str, Any]) -> bool:
    rows = block.get("rows") or []
    if not 1 <= len(rows) <= _ROWS or len(block.get("column_settings") or ()) > _COLUMNS:
        return True
    if any(len(row) != len(rows[0]) or not 1 <= len(row) <= _COLUMNS for row in rows):
        return True
    return len(_block_text(block)) > _TABLE_TEXT or any(
        _is_bad_cell(c) for row in rows for c in row
    )


def _is_bad_cell(cell: Mapping[str, Any]) -> bool:
    return _is_bad_rich_text(cell) if cell.get("type") == "rich_text" else not cell.get("text")


def _is_bad_rich_text(block: Mapping[str, Any]) -> bool:
    elements = block.get("elements") or []
    return (
        not elements
        or bool(set(block) - {"type", "elements", "block_id"})
        or any(map(_is_bad_element, elements))
    )


def _is_bad_element(element: Mapping[str, Any]) -> bool:
    """Return whether Slack refuses a part of rich text."""
    inner = element.get("elements") or []
    match element.get("type"):
        case "rich_text_list":
            allowed = {"type", "elements", "style", "indent", "offset", "border"}
            return (
                not inner
                or element.get("style") not in {"bullet", "ordered"}
                or not 0 <= element.get("indent", 0) <= _INDENT
                or bool(set(element) - allowed)
                or any(item.get("type") != "rich_text_section" for item in inner)
                or any(map(_is_bad_element, inner))
            )
        case "rich_text_section" | "rich_text_quote" | "rich_text_preformatted":
            known = all(map(_is_part, inner))
            return not inner or not known or bool(set(element) - {"type", "elements", "border"})
        case _:
            return True


def _is_part(part: Mapping[str, Any]) -> bool:
    allowed = {"text": {"type", "text", "style"}, "link": {"type", "text", "style", "url"}}
    fields = allowed.get(str(part.get("type")))
    styles = set(part.get("style", ()))
    return (
        fields is not None
        and not set(part) - fields
        and bool(part.get("text"))
        and styles <= {"bold", "italic", "strike", "code"}
    )


def _are_bad_buttons(elements: list[Mapping[str, Any]]) -> bool:
    ids = [str(element.get("action_id")) for element in elements]
    if not 1 <= len(elements) <= _ELEMENTS or len(set(ids)) != len(ids):
        return True
    return any(
        element.get("type") != "button"
        or not 1 <= len(element["text"]["text"]) <= _LABEL
        or element["text"]["type"] != "plain_text"
        or not 1 <= len(element["action_id"]) <= _ID
        or len(element.get("value", "")) > _VALUE
        or element.get("style", "primary") not in {"primary", "danger"}
        for element in elements
    )


def _block_text(block: Mapping[str, Any]) -> str:
    if block.get("type") == "table":
        return "".join(rich_words(cell) for row in block.get("rows") or [] for cell in row)
    if block.get("type") == "rich_text":
        return rich_words(block)
    text = block.get("text", "")
    return str(text.get("text", "")) if isinstance(text, dict) else str(text)


def rich_words(block: Mapping[str, Any]) -> str:
    """Return the visible text of rich text, with a line for each of its parts."""
    lines = []
    for element in block.get("elements") or ():
        inner = element.get("elements") or ()
        if element.get("type") == "rich_text_list":
            lines.append(rich_words(element))
        else:
            lines.append("".join(str(part.get("text") or part.get("url")) for part in inner))
    return "\n".join(lines)
