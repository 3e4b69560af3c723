"""Upgrades a configuration file: adds missing keys, and keeps everything else with its comments. Pure."""

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

WIDTH = 4096
"""Line width: wide enough not to wrap any line of a user's file."""


class ConfigUpgradeError(Exception):
    """The file cannot be upgraded. The message says why."""


def upgrade_config(text: str, example: str, *, version: int) -> str | None:
    r"""Return the file with the keys of a version, or None if it is up to date.

    Args:
        text: The user's file.
        example: The example file of this version. Keys that the user's file lacks are copied from it, with
            their comments; existing keys do not change.
        version: The version of the format.

    Raises:
        ConfigUpgradeError: The file is not a YAML mapping, or is newer than `version`.

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
    """Return a configuration's tree. Raises ConfigUpgradeError."""
    try:
        tree = yaml.load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigUpgradeError(
            f"{where}{getattr(error, 'problem', None) or 'not YAML'}"
        ) from None
    except (AttributeError, LookupError, RecursionError, ValueError):
        raise ConfigUpgradeError(
            "a value is impossible for its type, or a section is nested too deeply: `parley check` says which"
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
