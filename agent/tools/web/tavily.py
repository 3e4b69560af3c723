"""Tavily: search and extraction (docs.tavily.com, `POST /search`, `POST /extract`)."""

from functools import partial

from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.network.guard import hosted
from agent.tools.web.client import WebClient
from agent.tools.web.fields import mappings_of, text_of
from agent.tools.web.keys import keys_of
from agent.tools.web.page import headed
from agent.tools.web.tools import Found, fetch_tool, search_tool

SERVICE = "Tavily"
PUBLIC = "https://api.tavily.com"


def tavily_search(**keys: object) -> BaseTool:
    """Build web_search over Tavily. Keys: see WebKeys; `api_key` is needed."""
    return search_tool(partial(_search, WebClient(keys_of(keys), SERVICE)))


def tavily_fetch(**keys: object) -> BaseTool:
    """Build web_fetch over Tavily. Keys: see WebKeys; `api_key` is needed."""
    return fetch_tool(partial(_fetch, WebClient(keys_of(keys), SERVICE)))


async def _search(client: WebClient, query: str) -> list[Found]:
    answer = await client.json(
        "POST",
        client.url("/search", PUBLIC),
        headers=client.authorised(),
        content={"query": query, "max_results": client.keys.max_results},
    )
    found = [
        Found(
            title=text_of(entry, "title"),
            url=text_of(entry, "url"),
            snippet=text_of(entry, "content"),
        )
        for entry in mappings_of(answer.get("results"))
    ]
    return found[: client.keys.max_results]


async def _fetch(client: WebClient, url: str) -> str:
    await hosted(client.guard, url)
    answer = await client.json(
        "POST", client.url("/extract", PUBLIC), headers=client.authorised(), content={"urls": [url]}
    )
    for entry in mappings_of(answer.get("results")):
        text = text_of(entry, "raw_content", "content")
        if text:
            return headed(text_of(entry, "title") or url, text, client.keys.max_chars)
    reason = next((text_of(e, "error") for e in mappings_of(answer.get("failed_results"))), "")
    raise WebError(f"{SERVICE} could not read the page{': ' + reason[:200] if reason else ''}.")
