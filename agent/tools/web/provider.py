"""The model provider's own web search: the provider searches while it writes the answer, and names its sources."""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from agent.tools.web.ddgs import ddgs_search
from agent.tools.web.keys import parse_web_keys

PROVIDER_SEARCH = "provider_search"
"""Metadata key of the tool that the provider's search replaces. Its value is the maximum number of searches per
request."""


def provider_search(**keys: object) -> BaseTool:
    """Build the web_search of the model's provider. Other models search like `ddgs_search`. Keys: see WebKeys."""
    most = parse_web_keys(keys).max_results
    return ddgs_search(**keys).model_copy(update={"metadata": {PROVIDER_SEARCH: most}})


def provider_search_schema(model: BaseChatModel, most: int) -> dict[str, Any] | None:
    """Return the server-side search tool of a model; None if its class has none.

    OpenAI has it in its Responses API, Anthropic in its Messages API (platform.openai.com/docs/guides/tools-web-search,
    docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool). `most` limits the searches per request, for
    Anthropic.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "langchain_anthropic" in packages:
        return {"type": "web_search_20250305", "name": "web_search", "max_uses": most}
    if "langchain_openai" in packages and getattr(model, "use_responses_api", None) is not False:
        return {"type": "web_search"}
    return None
