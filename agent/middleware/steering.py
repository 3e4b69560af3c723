"""Adds messages that arrive while the run is active to the next model call."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.options import take_steering_messages
from agent.state import ThreadState


class SteeringMiddleware(AgentMiddleware[ThreadState, Any]):
    """Puts what was said to the run behind the history, before the model is called.

    It goes into the thread together with the model's answer, and in front of it: with a call that fails it is in no
    thread, and whoever said it can tell that by its id. It stands outermost, so that all other links see the
    messages as they see those with which the run began.
    """

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        said = take_steering_messages(get_config())
        return (
            _prepend_messages(await handler(_add_messages(request, said)), said)
            if said
            else await handler(request)
        )


def _add_messages(request: ModelRequest[Any], said: Sequence[AnyMessage]) -> ModelRequest[Any]:
    messages = [*request.messages, *said]
    # What others hand on, memory for one, they read from the state.
    return request.override(messages=messages, state={**request.state, "messages": messages})


def _prepend_messages(
    response: ModelResponse[Any], said: Sequence[AnyMessage]
) -> ModelResponse[Any]:
    return replace(response, result=[*said, *response.result])
