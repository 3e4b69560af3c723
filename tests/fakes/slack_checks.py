"""Is a request one that Slack would take? Against the machine-readable method table where it is present.

The table (`slack-methods.json`) lies beside the repository, in ../shared/specs; without it only the rules
written here are checked, and `METHODS_MISSING` says so.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

METHODS_FILE = Path(__file__).parents[3] / "shared" / "specs" / "slack-methods.json"
METHODS_MISSING = f"the method table {METHODS_FILE.name} is not in ../shared/specs"

JSON_ARGUMENTS = frozenset({"attachments", "blocks", "files", "metadata"})
_BY_CLIENT = frozenset({"token", "team_id"})
_LIVE = re.compile(r"<(![a-z]|@[UW]|#C)", re.IGNORECASE)
_SECTION_TEXT, _MARKDOWN_TEXT, _ALL_TEXT, _BLOCKS, _TEXT = 3_000, 12_000, 13_200, 50, 40_000


def load_methods() -> dict[str, Any]:
    """Return the method table, or an empty one."""
    if not METHODS_FILE.is_file():
        return {}
    table: dict[str, Any] = json.loads(METHODS_FILE.read_text())
    return table


def check_arguments(
    method: Mapping[str, Any], arguments: Mapping[str, Any], *, is_json: bool
) -> Iterator[str]:
    """Name every argument that is missing, unknown or of the wrong type."""
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


def block_error(blocks: list[dict[str, Any]]) -> str:
    """Return Slack's error for a message's blocks, or ""."""
    items = sum(_items(block) for block in blocks)
    if items > _BLOCKS:
        return "invalid_blocks"
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
    """Name what Slack would take, but nobody should send."""
    if blocks and not text:
        yield "blocks without a fallback text"
    if len(text) > _TEXT:
        yield f"text of {len(text)} characters would be cut"
    for shown in (text, *map(_block_text, blocks)):
        if live := _LIVE.search(shown):
            yield f"live token {live.group()}"


def _items(block: Mapping[str, Any]) -> int:
    if block.get("type") != "markdown":
        return 1
    lines = str(block.get("text")).splitlines()
    return 1 + sum(bool(re.match(r"#{1,6} |---+$|\*\*\*+$", line)) for line in lines)


def _block_text(block: Mapping[str, Any]) -> str:
    text = block.get("text", "")
    return str(text.get("text", "")) if isinstance(text, dict) else str(text)
