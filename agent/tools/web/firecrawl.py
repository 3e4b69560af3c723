"""Firecrawl: search and scraping (docs.firecrawl.dev, `POST /v2/search`, `POST /v2/scrape`)."""

from functools import partial

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.network.url_guard import check_remote_fetch
from agent.tools.services import ToolServices
from agent.tools.web.client import WebClient
from agent.tools.web.fields import as_object, first_text
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.page import with_title
from agent.tools.web.tools import SearchResult, fetch_tool, read_results, search_tool

SERVICE = "Firecrawl"
PUBLIC = "https://api.firecrawl.dev"


def firecrawl_search(**keys: object) -> BaseTool:
    """Build web_search over Firecrawl. Keys: see WebKeys; `api_key` is required."""
    return search_tool(partial(_search, WebClient(parse_web_keys(keys), SERVICE)))


def firecrawl_scrape(*, services: ToolServices | None = None, **keys: object) -> BaseTool:
    """Build web_fetch over Firecrawl. Keys: see WebKeys; `api_key` is required."""
    return fetch_tool(_fetch, WebClient(parse_web_keys(keys), SERVICE), services)


async def _search(client: WebClient, query: str) -> list[SearchResult]:
    answer = await client.json(
        "POST",
        client.url("/v2/search", PUBLIC),
        headers=client.auth_headers(),
        content={"query": query, "limit": client.keys.max_results},
    )
    data = answer.get("data")
    # Version 1 of the API, which self-hosted servers still use, returns the list itself.
    entries = data if isinstance(data, list) else as_object(data).get("web")
    return read_results(entries, client.keys.max_results, snippet=("description", "snippet"))


async def _fetch(client: WebClient, url: str, _offset: int, _: ToolRuntime) -> str:
    await check_remote_fetch(client.guard, url)
    answer = await client.json(
        "POST",
        client.url("/v2/scrape", PUBLIC),
        headers=client.auth_headers(),
        content={"url": url, "formats": ["markdown"], "onlyMainContent": True},
    )
    data = as_object(answer.get("data"))
    text = first_text(data, "markdown")
    if not text:
        raise WebError(f"{SERVICE} found no text on the page.")
    title = first_text(as_object(data.get("metadata")), "title", "ogTitle")
    return with_title(title or url, text)
