"""Limits model calls per turn, and makes the model answer with its last one."""

from itertools import takewhile
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.locales import AgentMessages
from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.system_message import add_reminder
from agent.middleware.tool_calls import without_tool_calls
from agent.state import ThreadState
from agent.subagents.progress import TURN_CAPPED
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
    """

    def __init__(self, max_turns: int | None = None) -> None:
        super().__init__()
        self._max_turns = max_turns

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        if not self._is_last(request):
            return await handler(request)
        response = await handler(add_reminder(request, LAST_TURN_REMINDER))
        return _final_response(response, localized_messages(request))

    def _is_last(self, request: ModelRequest[Any]) -> bool:
        most = self._max_turns or get_config()["recursion_limit"] // STEPS_PER_MODEL_CALL
        turn = takewhile(
            lambda message: not is_user_message(message), reversed(request.state["messages"])
        )
        calls = sum(message.type == "ai" for message in turn)
        return calls + 1 >= most


def _final_response(response: ModelResponse[Any], words: AgentMessages) -> ModelResponse[Any]:
    result = [_capped(message, words) for message in response.result]
    return ModelResponse(result=result, structured_response=response.structured_response)


def _capped(message: BaseMessage, words: AgentMessages) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    bare = without_tool_calls(message, words.step_limit_reached)
    marks = {**bare.additional_kwargs, TURN_CAPPED: True}
    return bare.model_copy(update={"additional_kwargs": marks})
