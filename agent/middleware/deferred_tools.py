"""Omits tools from requests until tool_search has loaded them."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.state import ThreadState
from agent.tools.tool_search import ToolCatalog


class DeferredToolsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Shows the model the tools outside the catalog, then the loaded ones in the order of loading.

    Loaded tools come last, so that the tools before them stay a prefix that providers have cached. The model can call
    every tool, loaded or not, because models repeat calls that they find in the history.

    Args:
        catalog: The tools to omit.
    """

    def __init__(self, catalog: ToolCatalog) -> None:
        super().__init__()
        self._catalog = catalog

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        listed = [
            tool
            for tool in request.tools
            if isinstance(tool, dict) or tool.name not in self._catalog.tools
        ]
        return await handler(
            request.override(tools=[*listed, *self._catalog.promoted(request.state)])
        )
