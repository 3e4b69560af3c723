"""Firecrawl: search and scraping (docs.firecrawl.dev, `POST /v2/search`, `POST /v2/scrape`)."""

from functools import partial

from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.network.guard import hosted
from agent.tools.web.client import WebClient
from agent.tools.web.fields import mapping_of, mappings_of, text_of
from agent.tools.web.keys import keys_of
from agent.tools.web.page import headed
from agent.tools.web.tools import Found, fetch_tool, search_tool

SERVICE = "Firecrawl"
PUBLIC = "https://api.firecrawl.dev"


def firecrawl_search(**keys: object) -> BaseTool:
    """Build web_search over Firecrawl. Keys: see WebKeys; `api_key` is needed."""
    return search_tool(partial(_search, WebClient(keys_of(keys), SERVICE)))


def firecrawl_scrape(**keys: object) -> BaseTool:
    """Build web_fetch over Firecrawl. Keys: see WebKeys; `api_key` is needed."""
    return fetch_tool(partial(_fetch, WebClient(keys_of(keys), SERVICE)))


async def _search(client: WebClient, query: str) -> list[Found]:
    answer = await client.json(
        "POST",
        client.url("/v2/search", PUBLIC),
        headers=client.authorised(),
        content={"query": query, "limit": client.keys.max_results},
    )
    data = answer.get("data")
    # Version 1 of the API, which self-hosted servers still speak, answers with the list itself.
    entries = data if isinstance(data, list) else mapping_of(data).get("web")
    found = [
        Found(
            title=text_of(entry, "title"),
            url=text_of(entry, "url"),
            snippet=text_of(entry, "description", "snippet"),
        )
        for entry in mappings_of(entries)
    ]
    return found[: client.keys.max_results]


async def _fetch(client: WebClient, url: str) -> str:
    await hosted(client.guard, url)
    answer = await client.json(
        "POST",
        client.url("/v2/scrape", PUBLIC),
        headers=client.authorised(),
        content={"url": url, "formats": ["markdown"], "onlyMainContent": True},
    )
    data = mapping_of(answer.get("data"))
    text = text_of(data, "markdown")
    if not text:
        raise WebError(f"{SERVICE} found no text on the page.")
    title = text_of(mapping_of(data.get("metadata")), "title", "ogTitle")
    return headed(title or url, text, client.keys.max_chars)
