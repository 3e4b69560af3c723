"""Parses results and tool lists of MCP servers, and formats results as text for the model. Pure."""

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    Tool,
)
from pydantic import TypeAdapter, ValidationError

from agent.mcp.images import image_path
from agent.redaction import redact_error

log = logging.getLogger(__name__)

EMPTY = "(no output)"
_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)
BASE64_BYTES_PER_CHAR = 0.75


def parse_result(answer: Mapping[str, Any]) -> CallToolResult:
    """Parse a tool's answer leniently. Parts of an unknown form become text.

    Some servers send newer block types, send null where the protocol forbids it, or send only `structuredContent`.

    >>> parse_result({"content": [{"type": "chart", "x": 1}], "isError": None}).content[0].text
    '{"type": "chart", "x": 1}'
    """
    content = answer.get("content")
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    structured = answer.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        blocks, structured = [*blocks, structured], None
    return CallToolResult(
        content=[_block(one) for one in blocks],
        structuredContent=structured,
        isError=answer.get("isError") is True,
    )


def parse_tools(listed: object) -> list[Tool]:
    """Parse a list of tools. Skips a tool that cannot be parsed, so that the others stay usable."""
    tools: list[Tool] = []
    for one in listed if isinstance(listed, list) else []:
        tool = {k: v for k, v in one.items() if v is not None} if isinstance(one, Mapping) else {}
        try:
            tools.append(Tool.model_validate({"inputSchema": {}, **tool}))
        except ValidationError:
            log.warning("an MCP server lists a tool that cannot be read: %.80r", tool.get("name"))
    return tools


def _block(block: object) -> ContentBlock:
    if isinstance(block, Mapping):
        with contextlib.suppress(ValidationError):
            return _BLOCK.validate_python({k: v for k, v in block.items() if v is not None})
        if isinstance(text := block.get("text"), str):
            return TextContent(type="text", text=text)
    return TextContent(type="text", text=block if isinstance(block, str) else _json(block))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def result_text(result: CallToolResult, images: Collection[str] = ()) -> str:
    """Return a result as text. Audio, files and unsaved images appear as descriptions.

    Args:
        result: The result; with `isError`, the text starts with `Error: `.
        images: Virtual paths of the saved images.
    """
    text = "\n".join(_lines(result.content, images)).strip()
    structured = result.structuredContent
    if structured is not None and not _says_the_same(text, structured):
        text = f"{text}\n{_json(structured)}".strip()
    if result.isError:
        reason = redact_error(text.removeprefix("Error:").strip())
        text = f"Error: {reason or 'the tool failed without a message'}"
    return text or EMPTY


def _says_the_same(text: str, structured: Mapping[str, Any]) -> bool:
    """Return whether a text repeats the structured content or its only value, because servers send both."""
    if list(structured.values()) == [text]:
        return True
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return parsed == structured or [parsed] == list(structured.values())


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
