"""Limits model calls and tokens per turn, and makes the model answer with its last one."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.system_message import add_reminder
from agent.middleware.tool_calls import without_tool_calls
from agent.state import ThreadState
from agent.subagents.progress import TURN_CAPPED
from agent.token_estimate import estimate_message_tokens
from agent.user_messages import is_user_message

LAST_TURN_REMINDER = (
    "This is your last message in this turn: tools are disabled. "
    "Answer now with what you have, and say what is missing."
)

STEPS_PER_MODEL_CALL = 2
"""Graph steps of a model call with tool calls. Parley's middleware adds none."""


class TurnLimitMiddleware(AgentMiddleware[ThreadState, Any]):
    """Counts model calls since the last user message, not graph steps; a retried call counts once.

    The last call gets a reminder, and its tool calls are dropped, so that the graph ends there.

    Args:
        max_turns: Maximum number of model calls, at least 1. None = as many as fit into the run's `recursion_limit`,
            because a run that exceeds it fails without an answer.
        max_tokens: Maximum input and output tokens of a turn; None = no limit. A call is the last one if there would be
            no room for two more calls as large as the latest.
    """

    def __init__(self, max_turns: int | None = None, max_tokens: int | None = None) -> None:
        super().__init__()
        self._max_turns = max_turns
        self._max_tokens = max_tokens

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        turn = [
            message
            for message in takewhile(
                lambda message: not is_user_message(message), reversed(request.state["messages"])
            )
            if isinstance(message, AIMessage)
        ]
        words = localized_messages(request)
        if len(turn) + 1 >= self._most_turns():
            note = words.step_limit_reached
        elif self._has_few_tokens(request, turn):
            note = words.turn_budget_reached
        else:
            return await handler(request)
        response = await handler(add_reminder(request, LAST_TURN_REMINDER))
        result = [_capped(message, note) for message in response.result]
        return ModelResponse(result=result, structured_response=response.structured_response)

    def _most_turns(self) -> int:
        return self._max_turns or get_config()["recursion_limit"] // STEPS_PER_MODEL_CALL

    def _has_few_tokens(self, request: ModelRequest[Any], turn: Sequence[AIMessage]) -> bool:
        """Return whether the tokens suffice for one more call, but not for two. `turn`: its calls, the latest first."""
        if self._max_tokens is None or not turn:
            return False
        tokens = [_call_tokens(request, message) for message in turn]
        return sum(tokens) + 2 * tokens[0] > self._max_tokens


def _call_tokens(request: ModelRequest[Any], answer: AIMessage) -> int:
    """Return the reported tokens of a call. If there are none, estimate the tokens of all messages."""
    usage = answer.usage_metadata
    return usage["total_tokens"] if usage else estimate_message_tokens(request.messages)


def _capped(message: BaseMessage, note: str) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    bare = without_tool_calls(message, note)
    marks = {**bare.additional_kwargs, TURN_CAPPED: True}
    return bare.model_copy(update={"additional_kwargs": marks})
