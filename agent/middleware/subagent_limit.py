"""Limits `task` calls per model response, and per message of a person."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_calls import remove_tool_calls
from agent.state import ThreadState
from agent.subagents.status import TASK, parse_error, status_kwargs

BUDGET_ERROR = (
    "Error: The budget of {budget} delegations for this message of the user is used up, so this one was not made. "
    "Do the work yourself, or say what is left to do"
)

MIN_CONCURRENT, MAX_CONCURRENT = 2, 4
"""Limits of concurrent subagents, as in DeerFlow."""


def clamp_concurrency(requested: int) -> int:
    """Return the number of concurrent subagents for a requested number.

    >>> [clamp_concurrency(requested) for requested in (0, 1, 3, 9)]
    [2, 2, 3, 4]
    """
    return min(max(requested, MIN_CONCURRENT), MAX_CONCURRENT)


class SubagentLimitMiddleware(AgentMiddleware[ThreadState, Any]):
    """Drops `task` calls beyond the number that may run at once, and answers calls beyond the budget with an error.

    The tool stays in the request, because providers cache requests by prefix, and tools come first.

    Args:
        at_once: `task` calls kept per response, clamped to `MIN_CONCURRENT` to `MAX_CONCURRENT`.
        budget: Maximum number of `task` calls per message of a person.
    """

    def __init__(self, at_once: int, budget: int) -> None:
        super().__init__()
        self._at_once = clamp_concurrency(at_once)
        self._budget = budget

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        left = max(0, self._budget - delegations_made(request.state["messages"]))
        response = await handler(request)
        result = [self._limit_message(message) for message in response.result]
        calls = [
            call
            for message in result
            if isinstance(message, AIMessage)
            for call in message.tool_calls
            if call["name"] == TASK
        ]
        errors = [self._over_budget(call) for call in calls[left:]]
        if not errors and all(new is old for new, old in zip(result, response.result, strict=True)):
            return response
        return ModelResponse(
            result=[*result, *errors], structured_response=response.structured_response
        )

    def _limit_message(self, message: BaseMessage) -> BaseMessage:
        if not isinstance(message, AIMessage):
            return message
        seen = 0

        def beyond(call: ToolCall) -> bool:
            nonlocal seen
            seen += call["name"] == TASK
            return call["name"] == TASK and seen > self._at_once

        return remove_tool_calls(message, beyond)

    def _over_budget(self, call: ToolCall) -> ToolMessage:
        text = BUDGET_ERROR.format(budget=self._budget)
        return ToolMessage(
            text,
            name=TASK,
            tool_call_id=call["id"] or "",
            status="error",
            additional_kwargs=dict(status_kwargs("failed", parse_error(text))),
        )


def delegations_made(messages: Sequence[AnyMessage]) -> int:
    """Return how many delegations the agent has requested since the last human message."""
    made = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, AIMessage):
            made += sum(call["name"] == TASK for call in message.tool_calls)
    return made
