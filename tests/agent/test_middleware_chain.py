"""A chain of middleware acts as one: order, repeated calls, and joined commands."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.types import Command
from typing_extensions import override

from agent.middleware.chain import MiddlewareChain

Handler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
REQUEST = cast("ModelRequest[Any]", object())


class Updating(AgentMiddleware[Any, Any]):
    """Calls the model a number of times, and returns the last response with a command."""

    def __init__(self, command: Command[Any] | None, *, calls: int = 1) -> None:
        super().__init__()
        self.command = command
        self.calls = calls

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Handler
    ) -> ExtendedModelResponse[Any]:
        responses = [await handler(request) for _ in range(self.calls)]
        return ExtendedModelResponse(responses[-1], self.command)


async def answer(_: ModelRequest[Any]) -> ModelResponse[Any]:
    return ModelResponse(result=[AIMessage("hi")])


def update(**values: object) -> Command[Any]:
    return Command(update=values)


async def test_the_updates_of_all_middleware_become_one_command() -> None:
    chain = MiddlewareChain(
        [
            Updating(update(a=1), calls=2),
            Updating(None),
            Updating(update(b=2)),
            Updating(update(a=3)),
        ]
    )
    result = await chain.awrap_model_call(REQUEST, answer)
    assert result.model_response.result[0].text == "hi"
    assert result.command == update(a=1, b=2)  # the outermost one is applied last


async def test_an_update_of_a_repeated_call_is_that_of_the_last_one() -> None:
    class OnceUpdating(Updating):
        @override
        async def awrap_model_call(
            self, request: ModelRequest[Any], handler: Handler
        ) -> ExtendedModelResponse[Any]:
            result = await super().awrap_model_call(request, handler)
            self.command = None
            return result

    chain = MiddlewareChain([Updating(None, calls=2), OnceUpdating(update(a=1))])
    result = await chain.awrap_model_call(REQUEST, answer)
    assert isinstance(result, ModelResponse)


async def test_a_command_that_goes_elsewhere_is_refused() -> None:
    chain = MiddlewareChain([Updating(None), Updating(Command(goto="end"))])
    with pytest.raises(TypeError, match="only update the state"):
        await chain.awrap_model_call(REQUEST, answer)
