"""DuckDuckGo image search: the page contains a token (`vqd`) for the JSON endpoint `i.js`. No key."""

import re
from functools import partial
from typing import Any

from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.tools.web.client import WebClient
from agent.tools.web.fields import first_text, iter_objects
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.tools import MAX_QUERY_CHARS, ImageArgs, image_tool

SERVICE = "DuckDuckGo"
PUBLIC = "https://duckduckgo.com"
HINT = (
    "View an image before you rely on it. Use image_url for full quality and thumbnail_url for previews. "
    "The images may be copyrighted."
)

_TOKEN = re.compile(r"""vqd=(?:"([\w-]{5,200})"|'([\w-]{5,200})'|([\w-]{5,200}))""")


def image_search(**keys: object) -> BaseTool:
    """Build image_search over DuckDuckGo. Keys: see WebKeys; `max_results` is the maximum per call."""
    return image_tool(partial(_search, WebClient(parse_web_keys(keys), SERVICE)))


async def _search(client: WebClient, wanted: ImageArgs) -> dict[str, object]:
    query = wanted.query[:MAX_QUERY_CHARS]
    token = await _token(client, query)
    answer = await client.json(
        "GET",
        client.url("/i.js", PUBLIC),
        headers={"Referer": client.url("/", PUBLIC)},
        query={"l": "wt-wt", "o": "json", "q": query, "vqd": token, "f": _filter(wanted), "p": "1"},
    )
    results = _results(answer)[: min(wanted.max_results, client.keys.max_results)]
    return {
        "query": wanted.query,
        "total_results": len(results),
        "results": results,
        "usage_hint": HINT if results else "No results: try different or fewer words.",
    }


async def _token(client: WebClient, query: str) -> str:
    page = await client.call(
        "GET", client.url("/", PUBLIC), query={"q": query, "iax": "images", "ia": "images"}
    )
    found = _TOKEN.search(page.text)
    if found is None:
        raise WebError(f"{SERVICE} blocked the search; try again later.")
    return next(group for group in found.groups() if group)


def _filter(wanted: ImageArgs) -> str:
    """Format the filter: time, size, color, type, layout, license."""
    size = f"size:{wanted.size}" if wanted.size else ""
    kind = f"type:{wanted.type}" if wanted.type else ""
    layout = f"layout:{wanted.layout}" if wanted.layout else ""
    return f",{size},,{kind},{layout},"


def _results(answer: dict[str, Any]) -> list[dict[str, str]]:
    entries = [
        {
            "title": first_text(entry, "title"),
            "image_url": first_text(entry, "image"),
            "thumbnail_url": first_text(entry, "thumbnail"),
        }
        for entry in iter_objects(answer.get("results"))
    ]
    return [entry for entry in entries if entry["image_url"]]
