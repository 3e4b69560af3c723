"""Caches tool schemas for OpenAI-compatible models, and inserts the provider's own web search."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.state import ThreadState
from agent.tools.web.provider import PROVIDER_SEARCH, provider_search_schema

MAX_TOOLS = 1_000
"""Maximum number of cached schemas."""

_CONVERTING_MODULE = "langchain_openai.chat_models.base"
"""The module whose `bind_tools` converts tools on each call, but accepts finished schemas unchanged.

A call with 500 tools takes 6 to 21 ms of CPU with conversion, and 0.8 ms with cached schemas.
"""

ModelTool = BaseTool | dict[str, Any]


class ToolSchemaMiddleware(AgentMiddleware[ThreadState, Any]):
    """Replaces tools with their schemas, and web_search with the provider's own search if configured.

    It is the innermost middleware, so that all others see the tools.
    """

    def __init__(self) -> None:
        super().__init__()
        self._schemas: dict[int, tuple[BaseTool, dict[str, Any]]] = {}

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        if any(_searches(tool) for tool in request.tools):
            tools = [_provider_tool(tool, request.model) for tool in request.tools]
            request = request.override(tools=tools)
        # With a response format, the model's class may require strict schemas.
        if request.response_format is None and _takes_schemas(request.model):
            tools = [self._schema(tool) for tool in request.tools]
            request = request.override(tools=tools)
        return await handler(request)

    def _schema(self, tool: ModelTool) -> ModelTool:
        """Return a tool's schema, or the tool itself if the model's class needs more than the schema."""
        if (
            isinstance(tool, dict)
            or tool.extras
            or (tool.metadata or {}).get("type") == "custom_tool"
        ):
            return tool
        known = self._schemas.get(id(tool))
        if known is None:
            if len(self._schemas) >= MAX_TOOLS:
                self._schemas.clear()
            # Keep a reference to the tool, so that no other tool gets its `id()`.
            known = self._schemas[id(tool)] = tool, convert_to_openai_tool(tool)
        return known[1]


def _searches(tool: ModelTool) -> bool:
    return not isinstance(tool, dict) and PROVIDER_SEARCH in (tool.metadata or {})


def _provider_tool(tool: ModelTool, model: BaseChatModel) -> ModelTool:
    """Return the provider's search for a tool that represents it, if the model has one; otherwise the tool itself."""
    if isinstance(tool, dict) or not _searches(tool):
        return tool
    return provider_search_schema(model, (tool.metadata or {})[PROVIDER_SEARCH]) or tool


def _takes_schemas(model: BaseChatModel) -> bool:
    return getattr(type(model).bind_tools, "__module__", "") == _CONVERTING_MODULE
