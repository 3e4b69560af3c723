"""Brings a configuration file up to date: what it says stays, with its comments; missing keys are added. Pure."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

MIGRATIONS: Mapping[int, Sequence[Callable[[CommentedMap], None]]] = {}
"""Version -> what turns a file of the version before into it: renamed and moved keys."""

WIDTH = 4096
"""So that no long line of a user's file is broken."""


class ConfigUpgradeError(Exception):
    """The file is not a configuration that can be brought up to date; the text says why."""


def upgrade_config(text: str, example: str, *, version: int) -> str | None:
    r"""Return the file as the given version has it, or None if it is up to date.

    Args:
        text: The user's file.
        example: The example file of this version: keys that the user's file lacks are taken from it, with
            their comments. Nothing that is there is changed.
        version: The version of the format.

    Raises:
        NotUpgradable: It is no YAML mapping, or newer than `version`.

    >>> print(upgrade_config("log_level: debug # mine", "config_version: 1\nlog_level: info\nx: 1 # new", version=1))
    log_level: debug # mine
    config_version: 1
    x: 1 # new
    <BLANKLINE>
    """
    yaml = round_trip_yaml()
    own, model = load_mapping(yaml, text), load_mapping(yaml, example)
    found = own.get("config_version", 0)
    if not isinstance(found, int) or found > version:
        raise ConfigUpgradeError("config_version is not a number, or newer than this Parley knows")
    if found == version:
        return None
    for step in range(found + 1, version + 1):
        for migrate in MIGRATIONS.get(step, ()):
            migrate(own)
    _add_missing(own, model)
    own["config_version"] = version
    out = io.StringIO()
    yaml.dump(own, out)
    return out.getvalue()


def round_trip_yaml() -> YAML:
    """Return a reader and writer that keeps comments, quotes and long lines."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def load_mapping(yaml: YAML, text: str) -> CommentedMap:
    """Return a configuration's tree. Raises NotUpgradable."""
    try:
        tree = yaml.load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigUpgradeError(
            f"{where}{getattr(error, 'problem', None) or 'not YAML'}"
        ) from None
    if tree is None:
        return CommentedMap()
    if not isinstance(tree, CommentedMap):
        raise ConfigUpgradeError("it must be a section of `key: value` lines at its top level")
    return tree


def _add_missing(own: CommentedMap, model: CommentedMap) -> None:
    for key, value in model.items():
        mine: Any = own.get(key)
        if key not in own:
            if own.fa.flow_style():  # `{a: 1}` has no room for comments
                own[key] = _without_comments(value)
                continue
            own[key] = value
            if key in model.ca.items:
                own.ca.items[key] = model.ca.items[key]
        elif isinstance(mine, CommentedMap) and isinstance(value, CommentedMap):
            _add_missing(mine, value)


def _without_comments(value: object) -> object:
    if isinstance(value, CommentedMap):
        return {key: _without_comments(item) for key, item in value.items()}
    return [_without_comments(item) for item in value] if isinstance(value, list) else value
