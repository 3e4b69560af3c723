"""Puts checkpoint events before the values they belong to, as the thread protocol requires.

LangGraph yields the values first. Clients pair the two to know the checkpoint from which to redo a message.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

MethodData = tuple[str, Any]
"""Method and data. Bytes are encoded JSON."""

NamespacedData = tuple[tuple[str, ...], MethodData]
"""Namespace, and method and data."""


class CheckpointOrdering:
    """Holds values back until the next event, which is their checkpoint or shows that they have none."""

    def __init__(self) -> None:
        self._held: list[NamespacedData] = []

    def reorder(self, events: Iterable[NamespacedData]) -> Iterator[NamespacedData]:
        """Yield the events with each checkpoint before its values."""
        for namespace, (method, data) in events:
            if method == "checkpoints":
                yield namespace, (method, checkpoint_envelope(orjson.loads(data)))
            yield from self._held
            self._held.clear()
            if method == "values":
                self._held.append((namespace, (method, data)))
            elif method != "checkpoints":
                yield namespace, (method, data)


def checkpoint_envelope(state: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a checkpoint event.

    >>> checkpoint_envelope({"config": {"configurable": {"checkpoint_id": "b"}}, "metadata": {"step": 1}})
    {'id': 'b', 'step': 1, 'source': None}
    """
    data = {"id": _id(state.get("config"))}
    parent = _id(state.get("parent_config"))
    metadata = state.get("metadata") or {}
    if parent is not None:
        data["parent_id"] = parent
    return data | {"step": metadata.get("step"), "source": metadata.get("source")}


def _id(config: dict[str, Any] | None) -> Any:  # noqa: ANN401 - JSON
    return ((config or {}).get("configurable") or {}).get("checkpoint_id")
