"""Three tools in the form that models know: web_search, web_fetch, image_search. Whatever fails is told as a text."""

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Literal

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import WebError

logger = logging.getLogger(__name__)

MAX_QUERY_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One result of a search."""

    title: str
    url: str
    snippet: str


class SearchArgs(BaseModel):
    """Arguments of web_search."""

    query: str = Field(description="What to look for, in a few words.", min_length=1)


class FetchArgs(BaseModel):
    """Arguments of web_fetch."""

    url: str = Field(
        description="The full URL, http:// or https://, as a person or a search gave it; do not make one up."
    )


class ImageArgs(BaseModel):
    """Arguments of image_search."""

    query: str = Field(description="What shall be seen, in a few words.", min_length=1)
    max_results: int = Field(default=5, ge=1, le=20, description="How many pictures.")
    size: Literal["Small", "Medium", "Large", "Wallpaper"] | None = Field(
        default=None, description="How large."
    )
    type: Literal["photo", "clipart", "gif", "transparent", "line"] | None = Field(
        default=None, description="What kind of picture."
    )
    layout: Literal["Square", "Tall", "Wide"] | None = Field(
        default=None, description="Which form."
    )


def search_tool(search: Callable[[str], Awaitable[list[SearchResult]]]) -> BaseTool:
    """Build web_search: answers with a JSON list of {title, url, snippet}."""

    async def web_search(query: str) -> str:
        async def work() -> str:
            found = await search(query[:MAX_QUERY_CHARS])
            return json.dumps([asdict(entry) for entry in found], indent=2, ensure_ascii=False)

        return await _told(work)

    return StructuredTool.from_function(
        coroutine=web_search,
        name="web_search",
        description="Search the web. Answers with titles, URLs and short extracts; read a page with web_fetch.",
        args_schema=SearchArgs,
    )


def fetch_tool(fetch: Callable[[str], Awaitable[str]]) -> BaseTool:
    """Build web_fetch: answers with `# title` and the beginning of the page as Markdown."""

    async def web_fetch(url: str) -> str:
        return await _told(lambda: fetch(url.strip()))

    return StructuredTool.from_function(
        coroutine=web_fetch,
        name="web_fetch",
        description=(
            "Read a public web page as Markdown. Pages behind a login, and addresses of private networks, cannot be "
            "read."
        ),
        args_schema=FetchArgs,
    )


def image_tool(search: Callable[[ImageArgs], Awaitable[dict[str, object]]]) -> BaseTool:
    """Build image_search: answers with a JSON object of the pictures' addresses."""

    async def image_search(**arguments: object) -> str:
        async def work() -> str:
            found = await search(ImageArgs.model_validate(arguments))
            return json.dumps(found, indent=2, ensure_ascii=False)

        return await _told(work)

    return StructuredTool.from_function(
        coroutine=image_search,
        name="image_search",
        description="Find pictures in the web, for example to look at how something is drawn. Answers with URLs.",
        args_schema=ImageArgs,
    )


async def _told(work: Callable[[], Awaitable[str]]) -> str:
    try:
        return await work()
    except WebError as error:
        logger.info("a web tool answered with an error: %s", error.user_message)
        return f"Error: {error.user_message}"[:600]
