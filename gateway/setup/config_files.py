"""The two files that `parley init` writes: config.yaml with `$NAME` values, and `.env` with the secrets."""

import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from gateway.config import CONFIG_VERSION
from gateway.config_file import parse_dotenv
from gateway.config_upgrade import ConfigUpgradeError, load_mapping, round_trip_yaml

ENV_FILE = ".env"
PRIVATE_MODE = 0o600
HEADER_COMMENT = "# Created by `parley init`. All keys: config.example.yaml and docs/reference/configuration.md.\n"
WEB_TOOLS: Sequence[Mapping[str, str]] = (
    {"name": "web_search", "group": "web", "use": "agent.tools.web:ddgs_search"},
    {"name": "web_fetch", "group": "web", "use": "agent.tools.web:fetch_page"},
)
"""The tools of a new configuration with a model. They need no keys."""

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+=-]*")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

KeyValues = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """Planned contents of a file.

    Attributes:
        current_text: Its current text; None = the file does not exist.
        replaced_keys: Names of the keys whose values would be replaced, without the values.
    """

    path: Path
    current_text: str | None
    new_text: str
    replaced_keys: Sequence[str]

    @property
    def changed(self) -> bool:
        """Whether the file needs to be written."""
        return self.current_text != self.new_text


def read_text(path: Path) -> str | None:
    """Return a file's text, or None if the file does not exist.

    Raises:
        ConfigUpgradeError: The file cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigUpgradeError(f"cannot be read ({error})") from None


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


def backup_draft(config: FileDraft) -> FileDraft:
    """Return the backup (`.bak`) of a changed configuration."""
    path = config.path.with_name(f"{config.path.name}.bak")
    return FileDraft(
        path=path,
        current_text=read_text(path),
        new_text=config.current_text or "",
        replaced_keys=(),
    )


def env_draft(path: Path, values: Mapping[str, str]) -> FileDraft:
    """Return `.env` with variables set. Keeps all other lines.

    Raises:
        ConfigUpgradeError: The file exists and cannot be read.
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


def write_drafts(drafts: Sequence[FileDraft]) -> None:
    """Replace each file atomically. Only the owner can read new files and files with secrets.

    Raises:
        OSError: A file cannot be written. None or only the first files were replaced.
    """
    ready: list[tuple[Path, Path]] = []
    try:
        for draft in drafts:
            if draft.changed:
                target = draft.path.resolve()
                handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
                ready.append((Path(name), target))
                _write_draft(handle, draft, target)
        for temporary, target in ready:
            temporary.replace(target)
    finally:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)


def _write_draft(handle: int, draft: FileDraft, target: Path) -> None:
    """Write the text to an open file. An existing configuration keeps its mode; all others are private."""
    holds_secrets = target.name == ENV_FILE
    mode = (
        PRIVATE_MODE
        if draft.current_text is None or holds_secrets
        else target.stat().st_mode & 0o777
    )
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(draft.new_text)
        file.flush()
        os.fchmod(handle, mode)
        os.fsync(handle)
