"""POST /api/markdown: parses Markdown as the platforms' messages are parsed, for pages that render it."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter
from pydantic import BaseModel, Field

from gateway.markdown_tokens import markdown_tokens

router = APIRouter(prefix="/markdown")

MAX_CHARS = 200_000
"""Longest text, characters."""


class MarkdownRequest(BaseModel):
    """Texts to parse."""

    texts: Annotated[list[Annotated[str, Field(max_length=MAX_CHARS)]], Field(max_length=200)]


class MarkdownResponse(BaseModel):
    """The blocks of each text: a string is text, and an object is a node with its kind `t` and its children `c`."""

    documents: list[list[Any]]


@router.post("", response_model=MarkdownResponse)
async def parse_markdown(asked: MarkdownRequest) -> dict[str, Any]:
    """Parse Markdown."""
    parsed = await to_thread.run_sync(lambda: [markdown_tokens(text) for text in asked.texts])
    return {"documents": parsed}
