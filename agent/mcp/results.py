"""Formats results of MCP tools as text for the model. Pure."""

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
    """Return a result as text; images, audio and files are described, not shown.

    Args:
        result: The result; with `isError`, the text starts with `Error: `.
        max_chars: Maximum length, including the truncation note.
    """
    text = "\n".join(_lines(result.content)).strip()
    if not text and result.structuredContent is not None:
        text = json.dumps(result.structuredContent, ensure_ascii=False)
    if result.isError:
        text = (
            f"Error: {text.removeprefix('Error:').strip() or 'the tool failed without a message'}"
        )
    return truncate(text or EMPTY, max_chars)


def truncate(text: str, max_chars: int) -> str:
    """Shorten a text and add a note.

    >>> truncate("x" * 200, 60)
    'xxxxxx... [truncated: 200 characters in total; request less]'
    """
    if len(text) <= max_chars:
        return text
    note = f"... [truncated: {len(text)} characters in total; request less]"
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
