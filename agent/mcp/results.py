"""What an MCP tool answered, as a text for the model of bounded length. Pure."""

import json
from collections.abc import Iterable
from typing import Final

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

EMPTY: Final = "(no output)"
BASE64_BYTES_PER_CHAR: Final = 0.75


def result_text(result: CallToolResult, max_chars: int) -> str:
    """Return the result as a text; images, sounds and files are named, with type and size, not shown.

    Args:
        result: What the server answered; with `isError` its text begins with `Error: `.
        max_chars: The longest text, its note about what was cut included.
    """
    said = "\n".join(_lines(result.content)).strip()
    if not said and result.structuredContent is not None:
        said = json.dumps(result.structuredContent, ensure_ascii=False)
    if result.isError:
        said = (
            f"Error: {said.removeprefix('Error:').strip() or 'the tool failed and did not say why'}"
        )
    return truncate(said or EMPTY, max_chars)


def truncate(text: str, max_chars: int) -> str:
    """Shorten a text, with a note that says so.

    >>> truncate("x" * 200, 60)
    'xxxxxxxx... [shortened: 200 characters in all, ask for less]'
    """
    if len(text) <= max_chars:
        return text
    note = f"... [shortened: {len(text)} characters in all, ask for less]"
    return text[: max(0, max_chars - len(note))] + note


def _lines(content: Iterable[ContentBlock]) -> Iterable[str]:
    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ImageContent | AudioContent):
            yield _named(block.type, block.mimeType, block.data)
        elif isinstance(block, ResourceLink):
            yield f"[resource {block.name}: {block.uri}]"
        elif isinstance(block, EmbeddedResource):
            yield _resource(block)


def _resource(block: EmbeddedResource) -> str:
    inner = block.resource
    if isinstance(inner, BlobResourceContents):
        return _named(f"file {inner.uri}", inner.mimeType or "of unknown type", inner.blob)
    return inner.text


def _named(what: str, mime: str, data: str) -> str:
    size = int(len(data.rstrip("=")) * BASE64_BYTES_PER_CHAR)
    return f"[{what}, {mime}, {size} bytes, not shown]"
