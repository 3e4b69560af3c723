"""Reads `langgraph.json`: graphs, the folders of their modules, and their variables."""

import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.config_file import ConfigError, read_dotenv

LEAD_ASSISTANT = "lead_agent"
"""Parley's own agent. It always exists here. A `langgraph.json` may also name it, for a LangGraph Server."""

LANGGRAPH_FILE = "langgraph.json"

_USED = frozenset({"$schema", "graphs", "dependencies", "env"})
_OF_IMAGES = frozenset(
    {
        *("python_version", "node_version", "api_version", "base_image", "image_distro", "source"),
        *("pip_config_file", "pip_installer", "keep_pkg_tools", "dockerfile_lines", "docker_tag"),
    }
)
"""Keys for images of a LangGraph Server. They do not affect how a graph runs."""

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class LangGraphFileError(Exception):
    """The file cannot be used. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LangGraphFile:
    """The content of a `langgraph.json`. Empty if it names only `lead_agent`, for a LangGraph Server.

    Attributes:
        graphs: Maps names to `path/to/file.py:attribute` or `module:attribute`, without `lead_agent`.
        folders: Local `dependencies` as absolute paths. Their modules can be imported.
        variables: `env`.
        warnings: Unsupported settings, one line each.
    """

    graphs: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()


def read_langgraph_file(folder: Path) -> LangGraphFile:
    """Read the `langgraph.json` of a folder. A missing file counts as empty. Raises LangGraphFileError."""
    file = folder / LANGGRAPH_FILE
    if not file.is_file():
        return LangGraphFile()
    document = _parse(file)
    graphs = dict(_graphs(file, document.get("graphs")))
    if not graphs:
        return LangGraphFile()
    warnings: list[str] = []
    folders = tuple(_folders(folder, document.get("dependencies"), warnings))
    variables = _variables(folder, document.get("env"), warnings)
    ignored = document.keys() - _USED - _OF_IMAGES
    warnings += [f"{key}: Parley ignores this key" for key in sorted(ignored)]
    return LangGraphFile(
        graphs=graphs,
        folders=folders,
        variables=variables,
        warnings=tuple(f"{file}: {line}" for line in warnings),
    )


def _parse(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LangGraphFileError(f"{file}: cannot be read: {error}") from error
    return document if isinstance(document, dict) else {}


def _graphs(file: Path, given: object) -> Iterator[tuple[str, str]]:
    if not isinstance(given, dict | None):
        raise LangGraphFileError(f"{file}: graphs: must name graphs")
    for name, one in (given or {}).items():
        use = one.get("path") if isinstance(one, dict) else one
        if not isinstance(use, str):
            raise LangGraphFileError(f"{file}: graphs.{name}: must be text such as ./file.py:graph")
        if name != LEAD_ASSISTANT:
            yield name, use


def _folders(base: Path, given: object, warnings: list[str]) -> Iterator[Path]:
    """Yield the folders among the dependencies. The others are packages, which must already be installed."""
    listed = given if isinstance(given, list) else []
    for one in (str(entry) for entry in listed):
        path = (base / one).resolve()
        if path.is_dir():
            yield path
        elif one.startswith((".", "/")) or "/" in one:
            warnings.append(f"dependencies: there is no folder {path}")
        elif not _is_installed(one):
            warnings.append(
                f"dependencies: {one} is not installed: install it into Parley's environment"
            )


def _is_installed(requirement: str) -> bool:
    name = _PACKAGE.match(requirement)
    try:
        return bool(name and importlib.metadata.distribution(name[0]))
    except importlib.metadata.PackageNotFoundError:
        return False


def _variables(base: Path, given: object, warnings: list[str]) -> Mapping[str, str]:
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items()}
    if not isinstance(given, str):
        return {}
    file = base / given
    if not file.is_file():
        warnings.append(f"env: there is no file {file}")
        return {}
    try:
        found = read_dotenv(file)
    except ConfigError as error:
        warnings.append(f"env: {error}")
        return {}
    if file != base / ".env":  # the configuration also reads this file and reports its problems
        warnings += found.problems
    return found.variables
