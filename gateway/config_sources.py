"""The configuration in force: each key with its value, the value's source, and whether a change needs a restart.

Values are as people may see them: secrets are masked, and a `$NAME` stays a name.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeGuard

from pydantic import BaseModel

from gateway.config import Config
from gateway.config_file import join_path
from gateway.config_reload import needs_restart
from gateway.config_variables import mask_value

Origin = Literal["default", "file", "environment", "command_line"]

_VARIABLE_KEYS = {"gateway.admin_token": "PARLEY_ADMIN_TOKEN"}
"""Keys that an environment variable sets even if the file does not name the variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """The source of a key's value.

    Attributes:
        origin: `environment` = the value comes from `variable`, which the file names unless `line` is 0.
        file: The configuration file; "" = the key is not in it.
        line: Its line there, from 1; 0 = it is not in the file.
        variable: The environment variable; "" = none.
        needs_restart: Whether a change takes effect only after a restart.
    """

    origin: Origin
    file: str = ""
    line: int = 0
    variable: str = ""
    needs_restart: bool

    @property
    def text(self) -> str:
        """The source in a few words: `default`, `config.yaml:12`, `config.yaml:12 ($NAME)`, `$NAME`, `command line`."""
        variable = f"${self.variable}" if self.variable else ""
        if not self.line:
            return variable or self.origin.replace("_", " ")
        place = f"{Path(self.file).name}:{self.line}"
        return f"{place} ({variable})" if variable else place


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInForce:
    """One key of the configuration in force.

    Attributes:
        path: The key's path, such as `channels.slack.streaming` or `models[0].name`.
        value: The value as people may see it, as JSON.
        source: The source of the value in the file, even if that value is not yet in force.
        waits_for_restart: Whether the file has another value, which takes effect after a restart.
    """

    path: str
    value: object
    source: KeySource
    waits_for_restart: bool


def find_source(config: Config, path: str) -> KeySource:
    """Return the source of one key."""
    line = config.lines.get(path, 0)
    variable = config.variables.get(path, "")
    if not line and config.environment.get(_VARIABLE_KEYS.get(path, "")):
        variable = _VARIABLE_KEYS[path]
    origin: Origin = "file" if line else "default"
    if variable:
        origin = "environment"
    if path in config.overrides:
        origin, line, variable = "command_line", 0, ""
    file = str(config.source) if line else ""
    return KeySource(
        origin=origin, file=file, line=line, variable=variable, needs_restart=needs_restart(path)
    )


def find_sources(config: Config) -> dict[str, KeySource]:
    """Return the source of each key, defaults included, by path."""
    return {path: find_source(config, path) for path in _values(config)}


def list_keys(started: Config, applied: Config) -> list[KeyInForce]:
    """Return the configuration in force: first keys that wait for a restart, then keys that are set, then defaults.

    Args:
        started: The configuration with which the service started.
        applied: The configuration that was last read from the file.
    """
    before, after = _values(started), _values(applied)
    rows = []
    for path in dict.fromkeys([*after, *before]):
        is_late = needs_restart(path)
        config, values = (started, before) if is_late else (applied, after)
        if path not in values and not is_late:
            continue  # The key was removed.
        rows.append(
            KeyInForce(
                path=path,
                value=_visible(path, values.get(path), config.variables),
                source=find_source(applied, path),
                waits_for_restart=is_late and before.get(path) != after.get(path),
            )
        )
    rows.sort(key=lambda row: (not row.waits_for_restart, row.source.origin == "default"))
    return rows


def changed_keys(before: Config, after: Config) -> list[str]:
    """Return the keys that were changed, added or removed."""
    old, new = _values(before), _values(after)
    return [path for path in {**old, **new} if old.get(path) != new.get(path)]


def _values(config: Config) -> dict[str, object]:
    """Return the value of each key, with its secrets."""
    parts: list[tuple[str, object]] = [
        ("log_level", config.log_level),
        ("log_format", config.log_format),
        ("", config.agent),
        ("channels", config.bus),
        *((f"channels.{name}", section) for name, section in config.bots.sections.items()),
        ("hooks", config.hooks),
        ("graphs", config.graphs),
        ("database", config.database),
        ("storage", config.storage),
        ("node", config.node),
        ("gateway", config.gateway),
        ("voice", config.voice),
    ]
    return {path: value for part, section in parts for path, value in _leaves(part, section)}


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield (path, value) of everything below that is not a section. Lists of plain values stay whole."""
    if isinstance(value, BaseModel):
        extra = value.model_extra or {}
        for key in (*type(value).model_fields, *extra):
            yield from _leaves(join_path(path, key), getattr(value, key))
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(join_path(path, str(key)), item)
    elif _is_list(value) and any(isinstance(item, Mapping | BaseModel) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(join_path(path, index), item)
    else:
        yield path, value


def _is_list(value: object) -> TypeGuard[Collection[object]]:
    return isinstance(value, list | tuple | set | frozenset)


def _visible(path: str, value: object, variables: Mapping[str, str]) -> object:
    if _is_list(value) and path not in variables:
        return [
            _visible(join_path(path, index), item, variables) for index, item in enumerate(value)
        ]
    if isinstance(value, Mapping):
        return {}
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return mask_value(path, value if is_plain else str(value), variables)
