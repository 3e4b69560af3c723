"""DuckDuckGo's image search: its page gives a token (`vqd`), with which `i.js` answers in JSON. No key."""

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
    "Look at a picture before you rely on it. Use image_url where quality counts and thumbnail_url for an overview; "
    "the pictures belong to others."
)

_TOKEN = re.compile(r"""vqd=(?:"([\w-]{5,200})"|'([\w-]{5,200})'|([\w-]{5,200}))""")


def image_search(**keys: object) -> BaseTool:
    """Build image_search over DuckDuckGo. Keys: see WebKeys; `max_results` is the most that a call gives."""
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
        "usage_hint": HINT if results else "Nothing was found: try other or fewer words.",
    }


async def _token(client: WebClient, query: str) -> str:
    page = await client.call(
        "GET", client.url("/", PUBLIC), query={"q": query, "iax": "images", "ia": "images"}
    )
    found = _TOKEN.search(page.text)
    if found is None:
        raise WebError(f"{SERVICE} did not let the search through; try again later.")
    return next(group for group in found.groups() if group)


def _filter(wanted: ImageArgs) -> str:
    """Write the filter as the page does: time, size, colour, type, layout, licence."""
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
