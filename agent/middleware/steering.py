"""Adds messages that arrive while the run is active to the next model call."""

from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langgraph.config import get_config
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.options import take_steering_messages
from agent.state import ThreadState


class SteeringMiddleware(AgentMiddleware[ThreadState, Any]):
    """Appends steering messages to the history before the model is called.

    They are saved before the model's answer, in the same step. If the call fails, they are not in the thread, and the
    sender can detect this by their ids. This is the outermost middleware, so that all others see them like the messages
    the run started with.
    """

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        arrived = take_steering_messages(get_config())
        if not arrived:
            return await handler(request)
        messages = [*request.messages, *arrived]
        # Other middleware, such as memory, reads messages from the state.
        state: AgentState[Any] = {**request.state, "messages": messages}
        response = await handler(request.override(messages=messages, state=state))
        return replace(response, result=[*arrived, *response.result])
