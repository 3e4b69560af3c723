"""Replaces `$NAME` values of a configuration with environment variables. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bots.config import BotsConfig, is_instance

_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SECRET_KEY = re.compile(
    r"(token|secret|password|api_key|encrypt_key|credential|authorization)s?$", re.I
)

MIN_SECRET_CHARS = 6
"""Shorter values are not redacted, because a common word would disappear from all log lines."""


@dataclass(slots=True, kw_only=True)
class ResolvedConfig:
    """A configuration tree with its variables replaced.

    Attributes:
        tree: The tree with every `$NAME` replaced.
        missing: (key path, variable) of each variable that is not set.
        secrets: Values to redact: values of variables, and of keys such as `token`.
    """

    tree: Any
    missing: list[tuple[str, str]] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)


def join_path(path: str, key: object) -> str:
    """Return the path of `key` below `path`.

    >>> join_path("", "gateway"), join_path("gateway", "port"), join_path("models", 0)
    ('gateway', 'gateway.port', 'models[0]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def resolve_variables(tree: Mapping[str, Any], environ: Mapping[str, str]) -> ResolvedConfig:
    """Replace each value of the form `$NAME`, except in disabled channels.

    Other values that contain a dollar sign are text.

    >>> done = resolve_variables({"a": "$HOME_X", "b": ["$NO"], "c": "5 $HOME_X"}, {"HOME_X": "here"})
    >>> done.tree, done.missing
    ({'a': 'here', 'b': ['$NO'], 'c': '5 $HOME_X'}, [('b[0]', 'NO')])
    """
    done = ResolvedConfig(tree=None)
    done.tree = _resolve_value(tree, "", environ, done)
    return done


def _resolve_value(
    value: object, path: str, environ: Mapping[str, str], done: ResolvedConfig
) -> object:
    if isinstance(value, dict):
        if _is_disabled_channel(path, value):
            return {key: _drop_variable(item) for key, item in value.items()}
        return {
            key: _resolve_value(item, join_path(path, key), environ, done)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _resolve_value(item, join_path(path, index), environ, done)
            for index, item in enumerate(value)
        ]
    if isinstance(value, str):
        return _resolve_text(value, path, environ, done)
    return value


def _resolve_text(value: str, path: str, environ: Mapping[str, str], done: ResolvedConfig) -> str:
    asked = _NAME.fullmatch(value)
    if asked and asked[1] not in environ:
        done.missing.append((path, asked[1]))
        return value
    result = environ[asked[1]] if asked else value
    if (asked or _SECRET_KEY.search(path)) and len(result) >= MIN_SECRET_CHARS:
        done.secrets.add(result)
    return result


def _is_disabled_channel(path: str, section: dict[Any, Any]) -> bool:
    parent, _, name = path.rpartition(".")
    known = BotsConfig.model_fields.get(name)
    if parent != "channels" or not (known or is_instance(section)):
        return False
    enabled = section.get("enabled")
    if enabled is None and known:
        enabled = known.get_default(call_default_factory=True).enabled
    return not enabled


def _drop_variable(value: object) -> object:
    """Return None (the default) for a variable."""
    return None if isinstance(value, str) and _NAME.fullmatch(value) else value
