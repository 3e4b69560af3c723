"""The types of the handlers that `awrap_model_call` and `awrap_tool_call` wrap."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

ModelHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
ToolResult = ToolMessage | Command[Any]
ToolHandler = Callable[[ToolCallRequest], Awaitable[ToolResult]]
