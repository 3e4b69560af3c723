"""GraphTree: the graphs of a run and their status. Pure."""

from collections.abc import Iterator
from typing import Any

import orjson

Namespace = tuple[str, ...]
"""The path to a subgraph: `node:task id` per level. Empty for the outermost graph."""

_ID = slice(len(b'{"id":"'), len(b'{"id":"') + 36)
"""The position of a task's ID in its event. An event may hold a whole state, so only its ID is read."""


class GraphTree:
    """The graphs of one run, as far as its events name them.

    Attributes:
        status: The status of the outermost graph: `running`, `completed`, `failed` or `interrupted`.
    """

    def __init__(self, graph_id: str) -> None:
        self.status = "running"
        self._graph_id = graph_id
        self._inner: dict[Namespace, str] = {}
        self._by_task: dict[bytes, Namespace] = {}

    def add_namespace(self, namespace: Namespace) -> Iterator[Namespace]:
        """Register a graph, and yield the new namespaces, outermost first."""
        for depth in range(1, len(namespace) + 1):
            one = namespace[:depth]
            if one not in self._inner:
                self._inner[one] = "running"
                self._by_task[one[-1].rpartition(":")[2].encode()] = one
                yield one

    def finish_task(self, data: bytes) -> tuple[Namespace, str] | None:
        """Process a `tasks` event. Return the graph that ended with it and its status, if any."""
        inner = self._by_task.get(data[_ID])
        if inner is None or self._inner[inner] != "running":
            return None
        task = orjson.loads(data)
        if "result" not in task:
            return None
        status = "completed"
        if task.get("error") is not None:
            status = "failed"
        elif task.get("interrupts"):
            status = "interrupted"
        self._inner[inner] = status
        return inner, status

    def finish(self, status: str) -> Iterator[tuple[Namespace, str]]:
        """Record the end of the run, and yield the subgraphs that were still running, innermost first."""
        self.status = status
        for one in sorted(self._inner, key=len, reverse=True):
            if self._inner[one] == "running":
                self._inner[one] = status
                yield one, status

    def statuses(self) -> list[dict[str, Any]]:
        """Return each graph's status, outermost first."""
        inner = [{"namespace": list(one), "status": how} for one, how in self._inner.items()]
        return [{"namespace": [], "status": self.status}, *inner]

    def to_wire(self) -> dict[str, Any]:
        """Return the tree in the protocol's form."""
        root = _node((), self.status, self._graph_id)
        nodes: dict[Namespace, dict[str, Any]] = {(): root}
        for one in sorted(self._inner, key=len):
            nodes[one] = _node(one, self._inner[one], graph_name(one))
            nodes[one[:-1]].setdefault("children", []).append(nodes[one])
        return root


def graph_name(namespace: Namespace) -> str:
    """Return the name of the node in which a graph runs.

    >>> graph_name(("parent:1", "child:2"))
    'child'
    """
    return namespace[-1].partition(":")[0]


def _node(namespace: Namespace, status: str, name: str) -> dict[str, Any]:
    return {"namespace": list(namespace), "status": status, "graph_name": name}
