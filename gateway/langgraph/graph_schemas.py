"""Introspection of graphs: nodes, edges and JSON schemas. Blocking."""

from collections.abc import Callable
from functools import partial
from typing import Any

from langgraph.pregel import Pregel
from pydantic import PydanticUserError, create_model

from gateway.runtime.execution import Graph

Schema = dict[str, Any]


def draw_graph(graph: Graph, *, xray: int | bool) -> Schema:
    """Return nodes and edges. `xray` expands subgraphs, completely or to a depth."""
    drawn: Schema = graph.get_graph(xray=xray).to_json()
    for node in drawn["nodes"]:
        if isinstance(node.get("data"), dict):
            node["data"].pop("id", None)
    return drawn


def graph_schemas(graph: Graph, graph_id: str) -> Schema:
    """Return the JSON schemas of a graph; None for types without one."""
    return {
        "graph_id": graph_id,
        "input_schema": _schema_or_none(graph.get_input_jsonschema),
        "output_schema": _schema_or_none(graph.get_output_jsonschema),
        "state_schema": _schema_or_none(lambda: _state_schema(graph)),
        "config_schema": None,
        "context_schema": _schema_or_none(graph.get_context_jsonschema),
    }


def subgraph_schemas(graph: Graph, namespace: str | None, *, recurse: bool) -> Schema:
    """Return the schemas of a graph's subgraphs by namespace."""
    found = graph.get_subgraphs(namespace=namespace, recurse=recurse)
    return {name: graph_schemas(inner, name) for name, inner in found if isinstance(inner, Pregel)}


def _state_schema(graph: Graph) -> Schema:
    fields: dict[str, Any] = {}
    for name in graph.stream_channels_list:
        kind = getattr(graph.channels[name], "UpdateType", Any)
        if not name.startswith("_"):
            fields[name] = (
                Any if _schema_or_none(partial(_model_schema, {"x": kind})) is None else kind
            )
    return _model_schema(fields, graph.get_name("State"))


def _model_schema(fields: dict[str, Any], name: str = "State") -> Schema:
    shapes: Any = {key: (kind, None) for key, kind in fields.items()}
    return create_model(name, **shapes).model_json_schema()  # type: ignore[no-any-return]


def _schema_or_none(make: Callable[[], Schema | None]) -> Schema | None:
    """Return a schema, or None for types that have none."""
    try:
        return make()
    except (PydanticUserError, TypeError, ValueError, NameError, AttributeError):
        return None
