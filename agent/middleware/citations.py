"""Lists the sources of a provider's web search below the answer."""

import re
from collections.abc import Iterator
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.tool_calls import append_note, has_calls
from agent.state import ThreadState

MAX_SOURCES = 10
MAX_TITLE_CHARS = 100
_URL = re.compile(r"https?://[^\s<>\"]{1,2000}")
_MARKUP = re.compile(r"[\[\]()<>*_`~|\\]+")


class CitationsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Appends the cited pages to an answer as Markdown links, unless its text links them already.

    Providers return citations separately from the text, where no chat shows them.
    """

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        response = await handler(request)
        heading = localized_messages(request).sources
        result = [_with_sources(message, heading) for message in response.result]
        return ModelResponse(result=result, structured_response=response.structured_response)


def _with_sources(message: BaseMessage, heading: str) -> BaseMessage:
    if not isinstance(message, AIMessage) or isinstance(message.content, str) or has_calls(message):
        return message
    text = message.text
    found: dict[str, str] = {}
    for url, title in _citations(message):
        if url not in text:
            found.setdefault(url, title)
    if not found:
        return message
    lines = [f"- [{title}]({url})" for url, title in list(found.items())[:MAX_SOURCES]]
    return append_note(message, "\n".join(["\n", heading, *lines]))


def _citations(message: AIMessage) -> Iterator[tuple[str, str]]:
    """Yield the URL and title of each cited web page, in the order of the text."""
    for block in cast("list[dict[str, Any]]", message.content_blocks):
        for one in block.get("annotations") or () if block.get("type") == "text" else ():
            url = one.get("url") if one.get("type") == "citation" else None
            if isinstance(url, str) and _URL.fullmatch(url):
                title = " ".join(_MARKUP.sub(" ", str(one.get("title") or "")).split())
                yield _link_target(url), title[:MAX_TITLE_CHARS] or url.split("/")[2]


def _link_target(url: str) -> str:
    """Escape parentheses in a URL, so that it works as the target of a Markdown link.

    >>> _link_target("https://a.example/b_(c)")
    'https://a.example/b_%28c%29'
    """
    return url.replace("(", "%28").replace(")", "%29")
