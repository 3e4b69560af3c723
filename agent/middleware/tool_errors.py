"""Turns exceptions of tools into tool messages, so that the run continues."""

import logging
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from typing_extensions import override

from agent.errors import AgentError
from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.redaction import redact_error
from agent.state import ThreadState
from agent.subagents.status import TASK, status_kwargs, with_status

log = logging.getLogger(__name__)

DETAIL_CHARS = 500
"""Longest error detail, ellipsis included."""

SEARCHED_CHARS = 10_000  # characters of an error to search for secrets


class ToolErrorMiddleware(AgentMiddleware[ThreadState, Any]):
    """Reports every exception of a tool to the model, without secrets. Interrupts pass through.

    Results of `task` have a status (`agent.subagents.status`), which the tool sets itself. For exceptions, and for
    plain text of another tool with that name, this middleware sets it.
    """

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        try:
            return _add_status(request, await handler(request))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a tool call
            return _error_message(request, error)


def _error_message(request: ToolCallRequest, error: Exception) -> ToolMessage:
    name = request.tool_call.get("name") or "unknown_tool"
    log.warning("Tool %s failed", name, exc_info=error)
    kind = type(error).__name__
    text = (
        error.user_message
        if isinstance(error, AgentError)
        else redact_error(str(error)[:SEARCHED_CHARS])
    )
    detail = _truncate(text or kind)
    return ToolMessage(
        content=(
            f"Error: Tool '{name}' failed with {kind}: {detail}. "
            "Continue with available context, or choose an alternative tool."
        ),
        name=name,
        tool_call_id=request.tool_call.get("id") or "missing_tool_call_id",
        status="error",
        additional_kwargs=status_kwargs("failed", f"{kind}: {detail}") if name == TASK else {},
    )


def _add_status(request: ToolCallRequest, result: ToolMessage | Command[Any]) -> ToolResult:
    is_task = request.tool_call.get("name") == TASK
    return with_status(result) if is_task and isinstance(result, ToolMessage) else result


def _truncate(detail: str) -> str:
    return detail if len(detail) <= DETAIL_CHARS else detail[: DETAIL_CHARS - 3] + "..."
