"""Determines whether the `messages` of a graph's state are LangChain's messages.

Only then is clients' input converted.
"""

from functools import lru_cache
from typing import Any, get_args, get_type_hints

from langchain_core.messages import BaseMessage
from langgraph.constants import START
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel


def has_messages(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Return whether the schema of a graph's input, or else of its state, has LangChain's `messages`."""
    if isinstance(graph, CompiledStateGraph):
        found = _schema_has_messages(graph.builder.input_schema)  # type: ignore[arg-type]  # a class
        if found is None:
            found = _schema_has_messages(graph.builder.state_schema)  # type: ignore[arg-type]
    else:  # A function of the functional API. Its input is the value of a channel.
        found = _has_messages(getattr(graph.channels.get(START), "typ", None))
    return found or False


def _has_messages(schema: Any) -> bool | None:  # noqa: ANN401 - any annotation
    """Return whether a schema's `messages` are LangChain's messages. None if it has no `messages`."""
    try:
        hint = get_type_hints(schema, include_extras=True).get("messages")
    except (NameError, TypeError):
        return None
    return None if hint is None else _names_messages(hint)


_schema_has_messages = lru_cache(maxsize=256)(_has_messages)


def _names_messages(hint: object) -> bool:
    """Return whether a type consists of messages, or is reduced as messages.

    >>> from typing import Annotated
    >>> from langchain_core.messages import AnyMessage
    >>> [_names_messages(hint) for hint in (list[AnyMessage], Annotated[list, add_messages], list[dict], list)]
    [True, True, False, False]
    """
    if isinstance(hint, type) and issubclass(hint, BaseMessage):
        return True
    # add_messages(format=...) is a partial of the function that add_messages wraps.
    if getattr(getattr(hint, "func", hint), "__doc__", None) == add_messages.__doc__:
        return True
    return any(map(_names_messages, get_args(hint)))
