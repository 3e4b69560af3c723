"""Builds web_search, web_fetch and image_search. Errors are returned as text."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import AgentError
from agent.tools.results import error_text, text_page
from agent.tools.services import ToolServices
from agent.tools.web.client import WebClient
from agent.tools.web.extraction import answer_from_page
from agent.tools.web.fields import first_text, iter_objects

log = logging.getLogger(__name__)

MAX_QUERY_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One result of a search."""

    title: str
    url: str
    snippet: str


def read_results(
    entries: object, most: int, *, url: str = "url", snippet: Sequence[str] = ("content",)
) -> list[SearchResult]:
    """Return at most `most` results from a service's list. `url` and `snippet` are the names of its fields."""
    found = [
        SearchResult(
            title=first_text(entry, "title"),
            url=first_text(entry, url),
            snippet=first_text(entry, *snippet),
        )
        for entry in iter_objects(entries)
    ]
    return found[:most]


class SearchArgs(BaseModel):
    """Arguments of web_search."""

    query: str = Field(description="Search terms.", min_length=1)


class FetchArgs(BaseModel):
    """Arguments of web_fetch."""

    url: str = Field(
        description="The full http:// or https:// URL, from the user or a search result. Do not guess URLs."
    )
    offset: int = Field(
        default=0, description="Characters to skip, to continue reading a long page."
    )
    question: str | None = Field(
        default=None,
        description="What you want to know from a long page: you get a short answer with quotes instead of the page.",
    )


class ImageArgs(BaseModel):
    """Arguments of image_search."""

    query: str = Field(description="What the images should show, in a few words.", min_length=1)
    max_results: int = Field(default=5, ge=1, le=20, description="Number of images.")
    size: Literal["Small", "Medium", "Large", "Wallpaper"] | None = Field(
        default=None, description="Image size."
    )
    type: Literal["photo", "clipart", "gif", "transparent", "line"] | None = Field(
        default=None, description="Image type."
    )
    layout: Literal["Square", "Tall", "Wide"] | None = Field(
        default=None, description="Image orientation."
    )


def search_tool(search: Callable[[str], Awaitable[list[SearchResult]]]) -> BaseTool:
    """Build web_search, which returns a JSON list of {title, url, snippet}."""

    async def web_search(query: str) -> str:
        async def work() -> str:
            found = await search(query[:MAX_QUERY_CHARS])
            return json.dumps([asdict(entry) for entry in found], indent=2, ensure_ascii=False)

        return await _run(work)

    return StructuredTool.from_function(
        coroutine=web_search,
        name="web_search",
        description="Search the web. Returns titles, URLs and snippets; read a page with web_fetch.",
        args_schema=SearchArgs,
    )


def fetch_tool(
    fetch: Callable[[WebClient, str, int, ToolRuntime], Awaitable[str]],
    client: WebClient,
    services: ToolServices | None = None,
) -> BaseTool:
    """Build web_fetch, which returns `# title` and the page as Markdown, or a model's answer from the page.

    Args:
        fetch: Fetches one URL. The offset says where reading starts; the text is complete.
        client: The tool's client.
        services: The agent's services; None = the tool is only built to be checked.
    """

    async def web_fetch(
        url: str, runtime: ToolRuntime, offset: int = 0, question: str | None = None
    ) -> str:
        async def work() -> str:
            text = await fetch(client, url.strip(), offset, runtime)
            if question and services is not None:
                model = await services.models(client.keys.model_name)
                return await answer_from_page(model, question, url, text)
            return text_page(text, offset, client.keys.max_chars)

        return await _run(work)

    return StructuredTool.from_function(
        coroutine=web_fetch,
        name="web_fetch",
        description=(
            "Read a public web page as Markdown. Documents and other files are saved in the workspace. "
            "Pages that require a login and private networks are not accessible."
        ),
        args_schema=FetchArgs,
    )


def image_tool(search: Callable[[ImageArgs], Awaitable[dict[str, object]]]) -> BaseTool:
    """Build image_search, which returns a JSON object with image URLs."""

    async def image_search(**arguments: object) -> str:
        async def work() -> str:
            found = await search(ImageArgs.model_validate(arguments))
            return json.dumps(found, indent=2, ensure_ascii=False)

        return await _run(work)

    return StructuredTool.from_function(
        coroutine=image_search,
        name="image_search",
        description="Search for images on the web, for example as visual references. Returns URLs.",
        args_schema=ImageArgs,
    )


async def _run(work: Callable[[], Awaitable[str]]) -> str:
    try:
        return await work()
    except AgentError as error:
        log.info("web tool error: %s", error.user_message)
        return error_text(error)
