"""Search with public search engines, without a key. The package `ddgs` queries several of them."""

import logging
from functools import partial

import anyio.to_thread
from langchain_core.tools import BaseTool

from agent.errors import WebError
from agent.tools.web.keys import WebKeys, parse_web_keys
from agent.tools.web.tools import SearchResult, read_results, search_tool

log = logging.getLogger(__name__)


def ddgs_search(**keys: object) -> BaseTool:
    """Build web_search over public search engines. Keys: see WebKeys; `max_results` and `timeout` apply."""
    return search_tool(partial(_search, parse_web_keys(keys)))


async def _search(keys: WebKeys, query: str) -> list[SearchResult]:
    try:
        with anyio.fail_after(2 * keys.timeout):
            found = await anyio.to_thread.run_sync(_ask, keys, query, abandon_on_cancel=True)
    except TimeoutError as error:
        raise WebError(f"No search engine answered within {2 * keys.timeout:g} seconds.") from error
    return read_results(found, keys.max_results, url="href", snippet=("body",))


def _ask(keys: WebKeys, query: str) -> list[dict[str, str]]:
    """Query the engines. Blocking: also imports the package."""
    from ddgs import DDGS  # noqa: PLC0415
    from ddgs.exceptions import DDGSException  # noqa: PLC0415

    engines = DDGS(timeout=round(keys.timeout))
    try:
        found: list[dict[str, str]] = engines.text(query, max_results=keys.max_results)
    except DDGSException as error:
        if "No results" in str(error):
            return []
        log.info("web search failed: %s", type(error).__name__)
        raise WebError(f"No search engine returned results ({type(error).__name__}).") from error
    return found
