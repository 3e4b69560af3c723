"""Bounds how often a subagent's model is called, and lets it answer with what it has when the bound is reached."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from typing_extensions import override

from agent.middleware.call_removal import without_calls
from agent.state import ThreadState
from agent.subagents.execution import TURN_CAPPED

LAST_TURN = (
    "This is your last turn: no tool can be called any more. "
    "Answer now with what you have, and say what is missing."
)


class TurnLimitMiddleware(AgentMiddleware[ThreadState, Any]):
    """Counts model calls, not steps of the graph; calls that are repeated after an error count once.

    The last call is told that it is the last. What it still calls is dropped, so that the graph ends there.

    Args:
        max_turns: Model calls of one subagent, at least 1.
    """

    def __init__(self, max_turns: int) -> None:
        super().__init__()
        self._max_turns = max_turns

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        if not self._is_last(request):
            return handler(request)
        return _final(handler(_told(request)))

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        if not self._is_last(request):
            return await handler(request)
        return _final(await handler(_told(request)))

    def _is_last(self, request: ModelRequest[Any]) -> bool:
        said = sum(isinstance(message, AIMessage) for message in request.state["messages"])
        return said + 1 >= self._max_turns


def _told(request: ModelRequest[Any]) -> ModelRequest[Any]:
    return request.override(messages=[*request.messages, HumanMessage(LAST_TURN)])


def _final(response: ModelResponse[Any]) -> ModelResponse[Any]:
    result = [_capped(message) for message in response.result]
    return ModelResponse(result=result, structured_response=response.structured_response)


def _capped(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    capped = without_calls(message, lambda _: True)
    marks = {**capped.additional_kwargs, TURN_CAPPED: True}
    return capped.model_copy(update={"additional_kwargs": marks})
