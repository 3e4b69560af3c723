"""Web tools for the `tools` section: search, pages, images. `use` refers to the names below."""

from agent.tools.web.ddgs import ddgs_search
from agent.tools.web.direct import fetch_page
from agent.tools.web.firecrawl import firecrawl_scrape, firecrawl_search
from agent.tools.web.images import image_search
from agent.tools.web.jina import jina_fetch
from agent.tools.web.provider import provider_search
from agent.tools.web.searxng import searxng_search
from agent.tools.web.tavily import tavily_fetch, tavily_search

__all__ = [
    "ddgs_search",
    "fetch_page",
    "firecrawl_scrape",
    "firecrawl_search",
    "image_search",
    "jina_fetch",
    "provider_search",
    "searxng_search",
    "tavily_fetch",
    "tavily_search",
]
