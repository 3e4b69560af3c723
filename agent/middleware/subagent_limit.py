"""Limits `task` calls per model response and per run."""

from collections.abc import Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolCall
from typing_extensions import override

from agent.locales import AgentMessages
from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.tool_calls import append_note, remove_tool_calls
from agent.state import ThreadState
from agent.subagents.status import TASK
from agent.subagents.subagent_types import MAX_DELEGATIONS

MIN_CONCURRENT, MAX_CONCURRENT = 2, 4
"""Limits of concurrent subagents, as in DeerFlow."""

DEFAULT_CONCURRENT = 3


def clamp_concurrency(requested: int) -> int:
    """Return the number of concurrent subagents for a requested number.

    >>> [clamp_concurrency(requested) for requested in (0, 1, 3, 9)]
    [2, 2, 3, 4]
    """
    return min(max(requested, MIN_CONCURRENT), MAX_CONCURRENT)


class SubagentLimitMiddleware(AgentMiddleware[ThreadState, Any]):
    """Drops `task` calls beyond the limits from the model's response; other calls stay.

    The tool stays in the request, because providers cache requests by prefix, and tools come first. If the response
    contains nothing but calls beyond the limit, a note is added, so that the run does not end without an answer.

    Args:
        at_once: `task` calls kept per response, clamped to `MIN_CONCURRENT` to `MAX_CONCURRENT`.
    """

    def __init__(self, at_once: int = DEFAULT_CONCURRENT) -> None:
        super().__init__()
        self.at_once = clamp_concurrency(at_once)

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        left = delegations_left(request.state["messages"])
        words = localized_messages(request)
        return self._limit_response(await handler(request), left, words)

    def _limit_response(
        self, response: ModelResponse[Any], left: int, words: AgentMessages
    ) -> ModelResponse[Any]:
        note = words.delegations_exhausted.format(limit=MAX_DELEGATIONS)
        result = [self._limit_message(message, left, note) for message in response.result]
        if all(new is old for new, old in zip(result, response.result, strict=True)):
            return response
        return ModelResponse(result=result, structured_response=response.structured_response)

    def _limit_message(self, message: BaseMessage, left: int, note: str) -> BaseMessage:
        if not isinstance(message, AIMessage):
            return message
        kept = min(self.at_once, left)
        seen = 0

        def beyond(call: ToolCall) -> bool:
            nonlocal seen
            seen += call["name"] == TASK
            return call["name"] == TASK and seen > kept

        cut = remove_tool_calls(message, beyond)
        silent = cut is not message and not cut.tool_calls
        return append_note(cut, note) if silent else cut


def delegations_left(messages: Sequence[AnyMessage]) -> int:
    """Return how many delegations are left since the last human message."""
    used = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, AIMessage):
            used += sum(call["name"] == TASK for call in message.tool_calls)
    return max(0, MAX_DELEGATIONS - used)
