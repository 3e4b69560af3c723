"""Calls models with schemas of tools that are made once."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from typing_extensions import override

from agent.langgraph_internals import override_request
from agent.middleware.handlers import ModelHandler
from agent.models.tool_schemas import ToolSchemas
from agent.state import ThreadState


class ToolSchemaMiddleware(AgentMiddleware[ThreadState, Any]):
    """Replaces tools by their schemas. Innermost: other middleware, and an embedding program's, sees the tools."""

    def __init__(self) -> None:
        super().__init__()
        self._schemas = ToolSchemas()

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        if request.response_format is None:  # otherwise its class may ask for strict schemas
            await self._schemas.prepare(request.model, request.tools)
            tools = self._schemas.for_model(request.model, request.tools)
            request = override_request(request, tools=tools)
        return await handler(request)
