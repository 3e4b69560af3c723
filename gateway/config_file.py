"""Finds the configuration file, and reads YAML (with a check for duplicate keys) and `.env`."""

import io
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values
from dotenv.parser import parse_stream
from typing_extensions import override
from yaml.constructor import ConstructorError

MAX_KEYS = 100_000
"""Maximum number of keys and list entries. Aliases inside aliases would otherwise fill the memory."""


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: One line each: file, key path, what is wrong, what to do. No secrets.
        partial: The readable part of the configuration (a `Config`), for further checks; None = nothing is readable.
    """

    def __init__(self, *problems: str, partial: object = None) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.partial = partial


def join_path(path: str, key: object) -> str:
    """Return the path of `key` below `path`.

    >>> join_path("", "gateway"), join_path("gateway", "port"), join_path("models", 0)
    ('gateway', 'gateway.port', 'models[0]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def find_config(path: str | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file: `path`, $PARLEY_CONFIG, ./config.yaml or ../config.yaml. None if none exists.

    Raises:
        ConfigError: The named file does not exist, or a folder cannot be read.
    """
    named = environ.get("PARLEY_CONFIG")
    for value, origin in ((path, "--config"), (named, "PARLEY_CONFIG")):
        if value:
            if not _is_file(Path(value)):
                raise ConfigError(f"{value}: no such file, but {origin} names it: correct the path")
            return Path(value).absolute()
    candidates = (Path("config.yaml"), Path("..") / "config.yaml")
    return next((file.resolve() for file in candidates if _is_file(file)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}): correct the path, or the permissions of its folder"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DotenvFile:
    """The content of a `.env` file.

    Attributes:
        variables: Its variables.
        problems: A message for each ignored line: one that is neither an assignment nor a comment.
    """

    variables: Mapping[str, str]
    problems: tuple[str, ...] = ()


def read_dotenv(file: Path) -> DotenvFile:
    """Read a `.env` file. A missing file has no variables. Raises ConfigError."""
    if not file.is_file():
        return DotenvFile(variables={})
    try:
        return parse_dotenv(file.read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}): correct or remove it") from None


def parse_dotenv(text: str, file: Path) -> DotenvFile:
    r"""Parse the text of a `.env` file. Problems name `file`, but no values, which may be secret.

    >>> parse_dotenv("A=1\n\nKEY value\n", Path(".env")).problems
    ('.env: line 3: is not of the form NAME=value, so it is ignored: correct or remove it',)
    """
    # A name without a value is valid: Docker takes its value from the environment.
    known: list[str] = []
    problems: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        whole = binding.original.string
        is_name = binding.value is not None or (binding.key or "_").isidentifier()
        if is_name and not binding.error:
            known.append(whole)
            continue
        line = binding.original.line + whole.count("\n", 0, len(whole) - len(whole.lstrip()))
        problems.append(
            f"{file}: line {line}: is not of the form NAME=value, so it is ignored: correct or remove it"
        )
    values = dotenv_values(stream=io.StringIO("".join(known)))
    variables = {name: value for name, value in values.items() if value is not None}
    return DotenvFile(variables=variables, problems=tuple(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlFile:
    """The content of a YAML file.

    Attributes:
        tree: Its keys and values.
        warnings: Duplicate keys.
        lines: Key path -> its line, from 1.
    """

    tree: dict[str, Any]
    warnings: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)


class _DuplicateKeyLoader(yaml.SafeLoader):
    """Collects a warning for each duplicate key. YAML itself silently uses the last value."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.warnings: list[str] = []

    @override
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node. Raises YAMLError with a line, unlike PyYAML's own errors."""
        try:
            return super().construct_object(node, deep)
        except (AttributeError, LookupError, ValueError):
            problem = "the value is impossible for its type"
            raise ConstructorError(None, None, problem, node.start_mark) from None

    @override
    def construct_mapping(
        self,
        node: yaml.Node,
        deep: bool = False,
    ) -> dict[Hashable, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise ConstructorError(None, None, "the value is not a mapping", node.start_mark)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in seen:
                line = key.start_mark.line + 1
                self.warnings.append(
                    f"line {line}: duplicate key `{key.value}`; the last value is used"
                )
            if isinstance(key.value, str) and key.value != "<<":
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_yaml(source: Path) -> YamlFile:
    """Read a YAML file. Raises ConfigError."""
    return parse_yaml(read_config_text(source), source)


def read_config_text(source: Path) -> str:
    """Return the text of a configuration file. Raises ConfigError."""
    try:
        return source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error})") from None


def parse_yaml(text: str, source: Path) -> YamlFile:
    """Parse the text of a YAML file. Problems name `source`. Raises ConfigError."""
    try:
        loader = _DuplicateKeyLoader(text)
        node = loader.get_single_node()
        tree = None if node is None else loader.construct_document(node)
        keys = list(islice(_walk(node, "", ()), MAX_KEYS + 1))
    except RecursionError:
        raise ConfigError(f"{source}: its sections are nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{source}: {where}{what}: correct the YAML") from None
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"{source}: has more than {MAX_KEYS} keys: use fewer aliases")
    if tree is None:
        return YamlFile(tree={})
    if not isinstance(tree, dict):
        raise ConfigError(f"{source}: must be a section of `key: value` lines at its top level")
    return YamlFile(
        tree={str(key): value for key, value in tree.items()},
        warnings=tuple(loader.warnings),
        lines={path: mark.line + 1 for path, mark in keys},
    )


def _walk(
    node: yaml.Node | None, path: str, above: tuple[yaml.Node, ...]
) -> Iterator[tuple[str, yaml.Mark]]:
    """Yield the path and the place of each key and list entry. Merged sections (`<<`) come first. Raises YAMLError."""
    if node is None:
        return
    if node in above:
        raise ConstructorError(None, None, "a section contains an alias of itself", node.start_mark)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = join_path(path, key.value)
            yield below, key.start_mark
            yield from _walk(value, below, (*above, node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield join_path(path, index), item.start_mark
            yield from _walk(item, join_path(path, index), (*above, node))
