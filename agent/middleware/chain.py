"""Joins several middleware into one, so that LangChain wraps each call once instead of once per middleware."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import (
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command
from typing_extensions import override

Middleware = AgentMiddleware[Any, Any]
ModelHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
ModelResult: TypeAlias = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
ModelHook: TypeAlias = Callable[[ModelRequest[Any], ModelHandler], Awaitable[ModelResult]]
ToolResult: TypeAlias = ToolMessage | Command[Any]
ToolHandler: TypeAlias = Callable[[ToolCallRequest], Awaitable[ToolResult]]
ToolHook: TypeAlias = Callable[[ToolCallRequest, ToolHandler], Awaitable[ToolResult]]


class MiddlewareChain(AgentMiddleware[Any, Any]):
    """Calls its middleware in order; the first one is the outermost.

    LangChain puts a LangSmith span around each middleware of each call, even without tracing. Each span costs 0.1 ms of
    CPU (measured), and there are twenty. A chain gets a single span.

    Args:
        middleware: With `awrap_model_call` and `awrap_tool_call` hooks and tools only. A command of a model hook may
            only update the state, with a dictionary. The updates of all hooks are merged.
    """

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        super().__init__()
        self._name = f"{type(self).__name__}({middleware[0].name})"
        self.tools = [tool for one in middleware for tool in getattr(one, "tools", ())]
        model_hooks: list[ModelHook] = [
            one.awrap_model_call
            for one in middleware
            if type(one).awrap_model_call is not AgentMiddleware.awrap_model_call
        ]
        tool_hooks: list[ToolHook] = [
            one.awrap_tool_call
            for one in middleware
            if type(one).awrap_tool_call is not AgentMiddleware.awrap_tool_call
        ]
        self._model_hooks = tuple(reversed(model_hooks))
        self._tool_call = reduce(_join_tool_hooks, tool_hooks) if tool_hooks else _call_tool

    @property
    @override
    def name(self) -> str:
        """A unique name, as LangChain requires. A program's own middleware can split the stack into two chains."""
        return self._name

    @override
    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        updates: dict[str, Any] = {}
        for hook in self._model_hooks:
            handler = partial(_call_hook, hook, handler, updates)
        response = await handler(request)
        return ExtendedModelResponse(response, Command(update=updates)) if updates else response

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> Any:
        return await self._tool_call(request, handler)


def join_middleware(
    outer: Sequence[Middleware | None],
    extra: Sequence[Middleware] = (),
    inner: Sequence[Middleware] = (),
) -> list[Middleware]:
    """Return the middleware in the given order, with Parley's own joined into chains.

    Args:
        outer: Parley's own; None is skipped.
        extra: The embedding program's.
        inner: Parley's own that goes inside `extra`.

    Raises:
        ValueError: Two have the same name.
    """
    outermost = [one for one in outer if one is not None]
    names = [one.name for one in (*outermost, *extra, *inner)]
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"invalid middleware: {duplicates[0]} is given twice")
    if not extra:
        return [MiddlewareChain([*outermost, *inner])]
    return [MiddlewareChain(outermost), *extra, MiddlewareChain(inner)]


async def _call_hook(
    hook: ModelHook,
    inner: ModelHandler,
    updates: dict[str, Any],
    request: ModelRequest[Any],
) -> ModelResponse[Any]:
    """Call a hook around the inner handler, and add the hook's state update to `updates`."""
    updates.clear()  # the outer hook may have called this one before
    result = await hook(request, inner)
    if isinstance(result, ModelResponse):
        return result
    response, update = _split_result(result)
    updates.update(update)
    return response


def _split_result(
    result: AIMessage | ExtendedModelResponse[Any],
) -> tuple[ModelResponse[Any], dict[str, Any]]:
    """Return a hook's response and its state update. Raises TypeError if its command does anything else."""
    if isinstance(result, AIMessage):
        return ModelResponse(result=[result]), {}
    command = result.command
    if command is None:
        return result.model_response, {}
    update = command.update
    if isinstance(update, dict) and command == Command(update=update):
        return result.model_response, update
    raise TypeError(
        f"a command from middleware may only update the state, with a dictionary: {command!r}"
    )


def _join_tool_hooks(outer: ToolHook, inner: ToolHook) -> ToolHook:
    """Return a hook that calls the outer hook around the inner hook."""

    async def joined(request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        return await outer(request, lambda request: inner(request, handler))

    return joined


async def _call_tool(request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
    return await handler(request)
