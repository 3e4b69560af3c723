"""Replaces `$NAME` values of a configuration with environment variables. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bots.config import BotsConfig, is_instance
from gateway.config_file import join_path

VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SECRET_KEY = re.compile(
    r"(token|secret|password|api[_-]?key|access_key|encrypt_key|private_key|credential|authorization|cookie)s?$",
    re.I,
)
URL_PASSWORD = re.compile(r"(://[^/?#\s:]*:)([^/?#\s]+)(?=@)")

MASK = "***"
"""The text that people see in place of a secret."""

_INDEX = re.compile(r"(\[\d+\])+$")

MIN_SECRET_CHARS = 6
"""Shorter values are not redacted, because a common word would disappear from all log lines."""


@dataclass(slots=True, kw_only=True)
class ResolvedConfig:
    """A configuration tree with its variables replaced.

    Attributes:
        tree: The tree with every `$NAME` replaced.
        missing: (key path, variable) of each variable that is not set.
        variables: Key path -> the variable that its value names.
        secrets: Values to redact: values of variables, and of keys such as `token`.
    """

    tree: Any
    missing: list[tuple[str, str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)


def is_secret_key(path: str) -> bool:
    """Return whether the value of a key is a secret.

    >>> is_secret_key("channels.slack.bot_token"), is_secret_key("headers.X-Api-Key"), is_secret_key("title.max_words")
    (True, True, False)
    """
    return _SECRET_KEY.search(_INDEX.sub("", path)) is not None


def is_hidden_key(path: str) -> bool:
    """Return whether to hide the value of a key: a secret, or any header, because a header's name does not tell.

    >>> is_hidden_key("models[0].default_headers.X-Tenant"), is_hidden_key("models[0].name")
    (True, False)
    """
    return is_secret_key(path) or "headers." in path.lower()


def mask_value(path: str, value: object, variables: Mapping[str, str]) -> object:
    """Return a value as people may see it: a variable's name instead of its value, and no secrets.

    >>> mask_value("a.token", "xoxb-1", {}), mask_value("a.token", "xoxb-1", {"a.token": "SLACK"})
    ('***', '$SLACK')
    >>> mask_value("database.url", "postgresql://bot:hush@db/parley", {}), mask_value("title.max_tokens", 60, {})
    ('postgresql://bot:***@db/parley', 60)
    """
    if path in variables:
        return f"${variables[path]}"
    if value in (None, "") or isinstance(value, bool):
        return value
    is_count = not isinstance(value, str) and path.lower().endswith("tokens")
    if is_hidden_key(path) and not is_count:
        return MASK
    return URL_PASSWORD.sub(rf"\1{MASK}", value) if isinstance(value, str) else value


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
            key: _resolve_value(item, join_path(path, str(key)), environ, done)
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
    asked = VARIABLE.fullmatch(value)
    if asked:
        done.variables[path] = asked[1]
    if asked and asked[1] not in environ:
        done.missing.append((path, asked[1]))
        return value
    result = environ[asked[1]] if asked else value
    if (asked or is_secret_key(path)) and len(result) >= MIN_SECRET_CHARS:
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
    return None if isinstance(value, str) and VARIABLE.fullmatch(value) else value
