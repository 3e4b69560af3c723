"""Finds the configuration file, and reads YAML (with a check for duplicate keys) and `.env`."""

import io
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values
from dotenv.parser import parse_stream
from typing_extensions import override


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


class _DuplicateKeyLoader(yaml.SafeLoader):
    """Collects a warning for each duplicate key. YAML itself silently uses the last value."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.warnings: list[str] = []

    @override
    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,
    ) -> dict[Hashable, Any]:
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


def read_yaml(source: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the tree of a YAML file, and warnings about duplicate keys. Raises ConfigError."""
    try:
        loader = _DuplicateKeyLoader(source.read_text("utf-8"))
        tree = loader.get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error})") from None
    except RecursionError:
        raise ConfigError(f"{source}: its sections are nested too deeply") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{source}: {where}{what}: correct the YAML") from None
    if tree is None:
        return {}, []
    if not isinstance(tree, dict):
        raise ConfigError(f"{source}: must be a section of `key: value` lines at its top level")
    return {str(key): value for key, value in tree.items()}, loader.warnings
