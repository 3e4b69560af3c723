"""web_fetch without a service: pages and files are fetched directly."""

import logging

import anyio.to_thread
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.options import thread_id_for_run
from agent.tools.services import ToolServices
from agent.tools.web.client import WebClient
from agent.tools.web.downloads import SavedDownloads
from agent.tools.web.keys import parse_web_keys
from agent.tools.web.page import page_text
from agent.tools.web.tools import fetch_tool

log = logging.getLogger(__name__)


def fetch_page(*, services: ToolServices | None = None, **keys: object) -> BaseTool:
    """Build web_fetch without a service. Keys: see WebKeys."""
    downloads = SavedDownloads(services) if services is not None else None

    async def fetch(client: WebClient, url: str, offset: int, runtime: ToolRuntime) -> str:
        if downloads is None:
            return await anyio.to_thread.run_sync(page_text, await client.fetch(url))
        thread_id = thread_id_for_run(runtime.context, runtime.config)
        if offset > 0 and (text := await downloads.read_again(thread_id, url)):
            return text
        answer = await client.fetch(url)
        if not answer.is_file:
            return await anyio.to_thread.run_sync(page_text, answer)
        try:
            return await downloads.save(thread_id, url, answer)
        except OSError as error:
            log.warning("a download cannot be saved: %s", error)
            raise WebError("The file cannot be saved in the workspace.") from error

    return fetch_tool(fetch, WebClient(parse_web_keys(keys), "the page"), services)
