"""Jina Reader: pages rendered by a browser (jina.ai/reader, `POST https://r.jina.ai/`)."""

from dataclasses import replace

import anyio.to_thread
import httpx
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.network.url_guard import check_remote_fetch
from agent.tools.services import ToolServices
from agent.tools.web.client import WebClient
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.page import page_text
from agent.tools.web.tools import fetch_tool

SERVICE = "Jina"
PUBLIC = "https://r.jina.ai"


def jina_fetch(*, services: ToolServices | None = None, **keys: object) -> BaseTool:
    """Build web_fetch over Jina. Keys: see WebKeys; `api_key` is optional and raises the rate limit."""
    return fetch_tool(_fetch, WebClient(parse_web_keys(keys), SERVICE), services)


async def _fetch(client: WebClient, url: str, _offset: int, _: ToolRuntime) -> str:
    await check_remote_fetch(client.guard, url)
    given = {"X-Return-Format": "html", "X-Timeout": f"{max(1, round(client.keys.timeout))}"}
    if client.keys.api_key is not None:
        given |= client.auth_headers()
    answer = await client.call("POST", client.url("/", PUBLIC), headers=given, content={"url": url})
    if not answer.body.strip():
        raise WebError(f"{SERVICE} returned an empty page.")
    # Its media type is text/plain even for the requested HTML.
    page = replace(answer, media_type="text/html", url=httpx.URL(url))
    return await anyio.to_thread.run_sync(page_text, page)
