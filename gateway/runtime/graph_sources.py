"""Sources of users' graphs: a graph, or a function that makes one each time it is needed."""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Literal, get_args, get_origin, get_type_hints

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore
from langgraph_sdk.runtime import (
    AccessContext,
    ServerRuntime,
    _ExecutionRuntime,
    _ReadRuntime,
)

from gateway.runtime.execution import Graph
from gateway.runtime.message_state import has_messages

_Role = Literal["config", "runtime"]

_NAMES = {"ServerRuntime": ServerRuntime, "RunnableConfig": RunnableConfig}
"""Names in annotations that may be imported for the type checker only."""

_RUNTIMES = (ServerRuntime, _ExecutionRuntime, _ReadRuntime)


class UnknownParameter(Exception):
    """A factory needs an argument that is neither a config nor a runtime. The text is the parameter's name."""


class FixedGraph:
    """A graph that is used as it is.

    Attributes:
        has_messages: Whether the `messages` of its state are LangChain's messages.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.has_messages = has_messages(graph)

    async def __call__(self, _config: RunnableConfig) -> Graph:
        """Return the graph."""
        return self._graph


class GraphFactory:
    """A function that returns a graph, a coroutine or a context manager of one.

    It takes no argument, the config, LangGraph's ServerRuntime, or both. A parameter gets the runtime because of its
    annotation or, without one, because of its name.

    Args:
        make: The function.
        to_graph: Converts the function's result to a graph, or raises.

    Raises:
        UnknownParameter: It needs another argument.
    """

    def __init__(self, make: Callable[..., Any], to_graph: Callable[[object], Graph]) -> None:
        self._make = make
        self._to_graph = to_graph
        self._parameters = _parameters(make)

    @asynccontextmanager
    async def open(
        self, config: RunnableConfig, runtime: ServerRuntime[Any]
    ) -> AsyncIterator[Graph]:
        """Make a graph for use inside the block."""
        given = {"config": config, "runtime": runtime}
        arguments = [(one, given[role]) for one, role in self._parameters]
        positional = [value for one, value in arguments if one.kind is one.POSITIONAL_ONLY]
        named = {one.name: value for one, value in arguments if one.kind is not one.POSITIONAL_ONLY}
        made = self._make(*positional, **named)
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            async with made as graph:
                yield self._to_graph(graph)
        elif isinstance(made, AbstractContextManager):
            with made as graph:
                yield self._to_graph(graph)
        else:
            yield self._to_graph(made)


def server_runtime(
    access: AccessContext, store: BaseStore, context: Mapping[str, Any]
) -> ServerRuntime[Any]:
    """Return the runtime that a factory gets: the graph's purpose and, for a run, its context."""
    if access == "threads.create_run":
        return _ExecutionRuntime(access_context=access, store=store, context=dict(context))
    return _ReadRuntime(access_context=access, store=store)


def _parameters(make: Callable[..., Any]) -> list[tuple[inspect.Parameter, _Role]]:
    """Return the parameters that receive an argument, in order, and the kind of each argument."""
    found: list[tuple[inspect.Parameter, _Role]] = []
    hints = _hints(make)
    for one in inspect.signature(make).parameters.values():
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            continue
        annotation = hints.get(one.name, one.annotation)
        roles = [role for _, role in found]
        if _is_runtime(annotation) or (annotation is one.empty and one.name == "runtime"):
            found.append((one, "runtime"))
        elif "config" not in roles and (one.default is one.empty or one.name == "config"):
            found.append((one, "config"))
        elif one.default is one.empty:
            raise UnknownParameter(one.name)
    return found


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(make, localns=_NAMES, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def _is_runtime(annotation: object) -> bool:
    """Return whether an annotation is ServerRuntime, with or without parameters, or text that names it."""
    if isinstance(annotation, str):
        return "ServerRuntime" in annotation
    origin = get_origin(annotation)
    if origin in _RUNTIMES or annotation in _RUNTIMES:
        return True
    return origin is not None and any(map(_is_runtime, get_args(annotation)[:1]))
