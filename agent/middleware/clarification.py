"""Turns an ask_clarification call into the turn's reply and ends the turn."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import (
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.types import Command
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler, ToolHandler, ToolResult
from agent.middleware.localization import localized_messages
from agent.state import ThreadState
from agent.tools.ask_clarification import NAME, question_text


class ClarificationMiddleware(AgentMiddleware[ThreadState, Any]):
    """Makes the question the turn's reply. This is the innermost middleware that may skip the model call.

    A single ask_clarification call ends the run, because the tool returns directly. If the response has other calls
    too, the graph returns to the model. This middleware then skips the model call and ends the run.
    """

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        return (
            _question_message(request)
            if request.tool_call["name"] == NAME
            else await handler(request)
        )

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if not awaits_answer(request.state["messages"]):
            return await handler(request)
        # `Command(goto=END)` alone does not end a run of create_agent, but `jump_to` in its state does.
        return ExtendedModelResponse(ModelResponse(result=[]), Command(update={"jump_to": "end"}))


def awaits_answer(messages: Sequence[AnyMessage]) -> bool:
    """Return whether the tool results at the end of the history include a question to the user."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            return False
        if message.name == NAME:
            return True
    return False


def _question_message(request: ToolCallRequest) -> ToolMessage:
    call = request.tool_call
    asked_in = next(one for one in reversed(request.state["messages"]) if one.type == "ai")
    return ToolMessage(
        # A replayed call replaces its question instead of asking twice. Call ids alone may repeat in a thread.
        id=f"clarification:{asked_in.id}:{call['id']}",
        content=question_text(call["args"], localized_messages(request)),
        name=NAME,
        tool_call_id=call["id"] or "missing_tool_call_id",
    )
