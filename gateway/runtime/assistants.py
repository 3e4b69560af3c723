"""The default assistant that exists for every graph. Pure."""

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from uuid import UUID, uuid5

from langchain_core.runnables import RunnableConfig

from gateway.runtime.errors import UnknownAssistant
from gateway.runtime.execution import Graph
from gateway.runtime.graph_sources import GraphFactory

GraphSource = Callable[[RunnableConfig], Awaitable[Graph]] | GraphFactory
"""A function that returns the graph for a run's config, or a factory that makes one each time."""

_NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The namespace from which LangGraph's server derives the IDs of default assistants."""


@lru_cache(maxsize=1024)
def assistant_id_for_graph(graph_id: str) -> str:
    """Return the ID of a graph's default assistant.

    >>> assistant_id_for_graph("agent")
    'fe096781-5601-53d2-b2f6-0d3403f7e9ca'
    """
    return str(uuid5(_NAMESPACE, graph_id))


def resolve_graph_id(assistant_id: str, graphs: Iterable[str]) -> str:
    """Return the graph ID of an assistant, given the assistant's ID or name. Raises UnknownAssistant.

    >>> resolve_graph_id("fe096781-5601-53d2-b2f6-0d3403f7e9ca", ["agent"]), resolve_graph_id("agent", ["agent"])
    ('agent', 'agent')
    """
    names = list(graphs)
    for graph_id in names:
        if assistant_id == graph_id or assistant_id.lower() == assistant_id_for_graph(graph_id):
            return graph_id
    raise UnknownAssistant(
        f"Invalid assistant: {assistant_id!r}. Must be the id of an assistant or one of: "
        f"{', '.join(sorted(names))}.",
        by_name=not is_uuid(assistant_id),
    )


def is_uuid(text: str) -> bool:
    """Return whether a text is the ID of an assistant, and not its name."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True
