"""Formats results of MCP tools as text for the model. Pure."""

import json
from collections.abc import Collection, Iterable
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

from agent.mcp.images import image_path

EMPTY: Final = "(no output)"
BASE64_BYTES_PER_CHAR: Final = 0.75


def result_text(result: CallToolResult, images: Collection[str] = ()) -> str:
    """Return a result as text; audio, files, and images that are not saved, are described.

    Args:
        result: The result; with `isError`, the text starts with `Error: `.
        images: Virtual paths of the images that are saved.
    """
    text = "\n".join(_lines(result.content, images)).strip()
    if not text and result.structuredContent is not None:
        text = json.dumps(result.structuredContent, ensure_ascii=False)
    if result.isError:
        text = (
            f"Error: {text.removeprefix('Error:').strip() or 'the tool failed without a message'}"
        )
    return text or EMPTY


def _lines(content: Iterable[ContentBlock], images: Collection[str]) -> Iterable[str]:
    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ImageContent) and image_path(block) in images:
            yield f"[image saved as {image_path(block)}]"
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
