"""The two files that `parley init` writes: config.yaml with `$NAME` values, and `.env` with the secrets."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from gateway.config import CONFIG_VERSION
from gateway.config_file import parse_dotenv
from gateway.config_upgrade import ConfigUpgradeError, load_mapping, round_trip_yaml
from gateway.file_drafts import FileDraft, read_text

HEADER_COMMENT = "# Created by `parley init`. All keys: config.example.yaml and docs/reference/configuration.md.\n"
WEB_TOOLS: Sequence[Mapping[str, str]] = (
    {"name": "web_search", "group": "web", "use": "agent.tools.web:ddgs_search"},
    {"name": "web_fetch", "group": "web", "use": "agent.tools.web:fetch_page"},
)
"""The tools of a new configuration with a model. They need no keys."""

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+=-]*")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

KeyValues = Mapping[tuple[str, ...], Any]


def parse_config(text: str | None) -> CommentedMap:
    """Return a configuration as a tree that keeps its comments.

    Raises:
        ConfigUpgradeError: It is not valid YAML, or not a mapping.
    """
    return load_mapping(round_trip_yaml(), text or "")


def referenced_variable(value: object, otherwise: str) -> str:
    """Return the variable that a value refers to, or the default one.

    >>> referenced_variable("$MY_TOKEN", "TOKEN"), referenced_variable("xoxb-1", "TOKEN")
    ('MY_TOKEN', 'TOKEN')
    """
    found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else otherwise


def config_draft(path: Path, keys: KeyValues, model: Mapping[str, Any] | None) -> FileDraft:
    """Return config.yaml with keys set and a model added. Keeps comments and all other keys.

    Args:
        path: The file, which need not exist.
        keys: Key path -> value.
        model: An entry to put first in `models`. If an entry has the same name, it is replaced in place. A new file
            gets the web tools too.

    Raises:
        ConfigError: The file exists and cannot be read.
        ConfigUpgradeError: The file exists and is not a configuration.
    """
    current = read_text(path)
    tree = parse_config(current)
    replaced: list[str] = []
    if current is None:
        tree["config_version"] = CONFIG_VERSION
    if model is not None:
        _add_model(tree, model, replaced)
        if current is None:
            tree["tools"] = [dict(tool) for tool in WEB_TOOLS]
    for keys_down, value in keys.items():
        _set_key(tree, keys_down, value, replaced)
    out = io.StringIO()
    round_trip_yaml().dump(tree, out)
    new = out.getvalue() if current is not None else HEADER_COMMENT + out.getvalue()
    return FileDraft(path=path, current_text=current, new_text=new, replaced_keys=replaced)


def _set_key(tree: CommentedMap, path: tuple[str, ...], value: object, replaced: list[str]) -> None:
    *above, key = path
    section: Any = tree
    for name in above:
        if section.get(name) is None:
            section[name] = CommentedMap()
        section = section[name]
        if not isinstance(section, CommentedMap):
            raise ConfigUpgradeError(f"{'.'.join(above)} is not a section of `key: value` lines")
    known = section.get(key)
    if known == value:
        return
    if known is not None and key != "enabled":
        replaced.append(".".join(path))
    section[key] = value


def _add_model(tree: CommentedMap, entry: Mapping[str, Any], replaced: list[str]) -> None:
    models = tree.get("models")
    if models is None:
        models = tree["models"] = []
    if not isinstance(models, list):
        raise ConfigUpgradeError("models is not a list")
    fresh = CommentedMap(entry)
    for index, known in enumerate(models):
        if isinstance(known, dict) and known.get("name") == entry["name"]:
            if dict(known) != dict(entry):
                replaced.append(f"models[{index}] ({entry['name']})")
                models[index] = fresh
            return
    models.insert(0, fresh)


def env_draft(path: Path, values: Mapping[str, str]) -> FileDraft:
    """Return `.env` with variables set. Keeps all other lines.

    Raises:
        ConfigError: The file exists and cannot be read.
    """
    current = read_text(path)
    known = parse_dotenv(current or "", path).variables
    lines = (current or "").splitlines()
    replaced: list[str] = []
    for name, value in values.items():
        if known.get(name) == value:
            continue
        if known.get(name):
            replaced.append(name)
        line = f"{name}={quote_env_value(value)}"
        at = [i for i, text in enumerate(lines) if re.match(rf"(export\s+)?{name}\s*=", text)]
        if at:
            lines[at[-1]] = line
        else:
            lines.append(line)
    new = "".join(f"{line}\n" for line in lines)
    unchanged = all(known.get(name) == value for name, value in values.items())
    new = current if unchanged and current is not None else new
    return FileDraft(path=path, current_text=current, new_text=new, replaced_keys=replaced)


def quote_env_value(value: str) -> str:
    r"""Return a value as written after `NAME=`, quoted if necessary.

    >>> quote_env_value("xoxb-1:2"), quote_env_value("a b#c"), quote_env_value("it's")
    ('xoxb-1:2', "'a b#c'", "'it\\'s'")
    """
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
