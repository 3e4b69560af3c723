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


def result_text(result: CallToolResult) -> str:
    """Return a result as text; images, audio and files are described, not shown.

    With `isError`, the text starts with `Error: `.
    """
    text = "\n".join(_lines(result.content)).strip()
    if not text and result.structuredContent is not None:
        text = json.dumps(result.structuredContent, ensure_ascii=False)
    if result.isError:
        text = (
            f"Error: {text.removeprefix('Error:').strip() or 'the tool failed without a message'}"
        )
    return text or EMPTY


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
