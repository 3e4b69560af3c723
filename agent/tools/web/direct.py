"""web_fetch without a service: pages are fetched directly."""

import anyio.to_thread
from langchain_core.tools import BaseTool

from agent.tools.web.client import WebClient
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.page import page_text
from agent.tools.web.tools import fetch_tool


def fetch_page(**keys: object) -> BaseTool:
    """Build web_fetch without a service. Keys: see WebKeys."""
    return fetch_tool(_fetch, WebClient(parse_web_keys(keys), "the page"))


async def _fetch(client: WebClient, url: str) -> str:
    answer = await client.fetch(url)
    return await anyio.to_thread.run_sync(page_text, answer)
