"""Loads your own LangGraph graphs, which are additional assistants of the embedded runtime."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

from langgraph.graph.state import StateGraph
from langgraph.pregel import Pregel

from agent.errors import AgentError, ObjectNotImportable
from agent.importer import import_object
from gateway.langgraph_file import LEAD_ASSISTANT, LangGraphFileError, read_langgraph_file
from gateway.runtime.assistants import GraphSource
from gateway.runtime.execution import Graph
from gateway.runtime.graph_sources import FixedGraph, GraphFactory, UnknownParameter

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class GraphUnusable(AgentError):
    """A configured graph cannot be loaded, or is not a graph."""


def find_graphs(configured: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the configured graphs, then graphs that only a `langgraph.json` in `folder` names.

    Args:
        configured: The `graphs` of the configuration: names to `path/to/file.py:attribute` or `module:attribute`.
        folder: The folder of the configuration.

    Raises:
        GraphUnusable: The `langgraph.json` or a name is invalid.
    """
    try:
        further = read_langgraph_file(folder).graphs
    except LangGraphFileError as error:
        raise GraphUnusable(str(error)) from error
    if LEAD_ASSISTANT in configured:
        raise GraphUnusable(f"graphs.{LEAD_ASSISTANT}: is Parley's own agent: choose another name")
    found = {**further, **configured}
    for name in found:
        if not _NAME.fullmatch(name):
            raise GraphUnusable(
                f"graphs: {name!r} is not a valid name: use only letters, digits, - and _"
            )
    return found


def load_graphs(configured: Mapping[str, str], folder: Path) -> dict[str, GraphSource]:
    """Import the graphs that `find_graphs` returns. Return a factory for each of them.

    A compiled graph or `@entrypoint` is used directly, and a `StateGraph` is compiled. A function is called each time
    a graph is needed; see `GraphFactory`.

    Args:
        configured: The `graphs` of the configuration.
        folder: The configuration's folder, which is the base of relative paths.

    Raises:
        GraphUnusable: See `find_graphs`. Also raised if a graph cannot be imported, or is not a graph.
    """
    uses = find_graphs(configured, folder)
    return {name: _source(name, use, folder) for name, use in uses.items()}


def _source(name: str, use: str, folder: Path) -> GraphSource:
    found = _import(name, use, folder)
    if not callable(found) or isinstance(found, Pregel | StateGraph):
        return FixedGraph(_compiled(name, found))
    try:
        return GraphFactory(found, partial(_compiled, name))
    except UnknownParameter as error:
        raise GraphUnusable(
            f"graphs.{name}: the function has a parameter {str(error)!r}: it can take the run's config and a"
            " ServerRuntime"
        ) from error


def _compiled(name: str, found: object) -> Graph:
    if isinstance(found, StateGraph):
        return found.compile()
    if isinstance(found, Pregel):
        # Copy it: the copy gets a checkpointer, and the module can still call the original without a thread.
        return found.copy()
    kind = type(found).__name__
    raise GraphUnusable(
        f"graphs.{name}: names a {kind}: must be a StateGraph, compiled or not, an @entrypoint,"
        " or a function that returns one"
    )


def _import(name: str, use: str, folder: Path) -> object:
    place, _, attribute = use.rpartition(":")
    if not place.endswith(".py"):
        try:
            return import_object(use)
        except ObjectNotImportable as error:
            raise GraphUnusable(f"graphs.{name}: {error.user_message}") from error
    module = _load_file(name, (folder / place).resolve())
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise GraphUnusable(f"graphs.{name}: {place} has no attribute {attribute!r}") from None


def _load_file(name: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise GraphUnusable(f"graphs.{name}: there is no file {file}")
    module_name = f"parley_graph_{name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise GraphUnusable(f"graphs.{name}: {file} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Dataclasses and annotations look up their module there.
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(module_name, None)
        text = f"graphs.{name}: {file} cannot be imported: {type(error).__name__}: {error}"
        raise GraphUnusable(text) from error
    return module
