"""Tavily: search and extraction (docs.tavily.com, `POST /search`, `POST /extract`)."""

from functools import partial

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.network.url_guard import check_remote_fetch
from agent.tools.services import ToolServices
from agent.tools.web.client import WebClient
from agent.tools.web.fields import first_text, iter_objects
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.page import with_title
from agent.tools.web.tools import SearchResult, fetch_tool, read_results, search_tool

SERVICE = "Tavily"
PUBLIC = "https://api.tavily.com"


def tavily_search(**keys: object) -> BaseTool:
    """Build web_search over Tavily. Keys: see WebKeys; `api_key` is required."""
    return search_tool(partial(_search, WebClient(parse_web_keys(keys), SERVICE)))


def tavily_fetch(*, services: ToolServices | None = None, **keys: object) -> BaseTool:
    """Build web_fetch over Tavily. Keys: see WebKeys; `api_key` is required."""
    return fetch_tool(_fetch, WebClient(parse_web_keys(keys), SERVICE), services)


async def _search(client: WebClient, query: str) -> list[SearchResult]:
    answer = await client.json(
        "POST",
        client.url("/search", PUBLIC),
        headers=client.auth_headers(),
        content={"query": query, "max_results": client.keys.max_results},
    )
    return read_results(answer.get("results"), client.keys.max_results)


async def _fetch(client: WebClient, url: str, _offset: int, _: ToolRuntime) -> str:
    await check_remote_fetch(client.guard, url)
    answer = await client.json(
        "POST",
        client.url("/extract", PUBLIC),
        headers=client.auth_headers(),
        content={"urls": [url]},
    )
    for entry in iter_objects(answer.get("results")):
        text = first_text(entry, "raw_content", "content")
        if text:
            return with_title(first_text(entry, "title") or url, text)
    reason = next((first_text(e, "error") for e in iter_objects(answer.get("failed_results"))), "")
    raise WebError(f"{SERVICE} could not read the page{': ' + reason[:200] if reason else ''}.")
