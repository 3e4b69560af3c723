"""SearXNG: search with your own server, without a key (docs.searxng.org, `GET /search?format=json`)."""

from functools import partial

from langchain_core.tools import BaseTool

from agent.errors import ObjectNotImportable
from agent.tools.web.client import WebClient
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.tools import SearchResult, read_results, search_tool

SERVICE = "SearXNG"


def searxng_search(**keys: object) -> BaseTool:
    """Build web_search over SearXNG. Keys: see WebKeys; `base_url` is required.

    The server must allow the format `json` (`search.formats` in its settings).
    """
    parsed = parse_web_keys(keys)
    if parsed.base_url is None:
        raise ObjectNotImportable("searxng_search needs `base_url`, the URL of the SearXNG server")
    return search_tool(partial(_search, WebClient(parsed, SERVICE)))


async def _search(client: WebClient, query: str) -> list[SearchResult]:
    answer = await client.json(
        "GET", client.url("/search", ""), query={"q": query, "format": "json"}
    )
    return read_results(answer.get("results"), client.keys.max_results)
