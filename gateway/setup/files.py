"""The two files that `parley init` writes: config.yaml with `$NAME` values, and `.env` with the secrets."""

import io
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from ruamel.yaml.comments import CommentedMap

from gateway.config import CONFIG_VERSION
from gateway.upgrade import NotUpgradable, mapping, round_trip

ENV_FILE = ".env"
PRIVATE = 0o600
HEAD = "# Begun by `parley init`. Every key stands in config.example.yaml and docs/reference/configuration.md.\n"
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+=-]*")
_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

Keys = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A file as it is to be.

    Attributes:
        before: Its text now; None = there is none.
        replaced: What it says now and would not say any more, by name; no values.
    """

    path: Path
    before: str | None
    after: str
    replaced: Sequence[str]

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after


def read(path: Path) -> str | None:
    """Return a file's text, or None where there is no file.

    Raises:
        NotUpgradable: It cannot be read.
    """
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise NotUpgradable(f"cannot be read ({error})") from None


def tree_of(text: str | None) -> CommentedMap:
    """Return a configuration as a tree that keeps its comments.

    Raises:
        NotUpgradable: It is not YAML, or not a section of keys.
    """
    return mapping(round_trip(), text or "")


def variable_of(value: object, otherwise: str) -> str:
    """Return the variable that a key names already, or the usual one.

    >>> variable_of("$MY_TOKEN", "TOKEN"), variable_of("xoxb-1", "TOKEN"), variable_of(None, "TOKEN")
    ('MY_TOKEN', 'TOKEN', 'TOKEN')
    """
    found = _NAME.fullmatch(value) if isinstance(value, str) else None
    return found[1] if found else otherwise


def config_draft(path: Path, keys: Keys, model: Mapping[str, Any] | None) -> Draft:
    """Return config.yaml with keys set and a model added; comments and all other keys stay.

    Args:
        path: The file; it need not exist.
        keys: Key path -> value.
        model: An entry of `models`, which becomes the first, and replaces one of the same name.

    Raises:
        NotUpgradable: The file is there and is no configuration.
    """
    before = read(path)
    tree = tree_of(before)
    replaced: list[str] = []
    if before is None:
        tree["config_version"] = CONFIG_VERSION
    if model is not None:
        _put_model(tree, model, replaced)
    for keys_down, value in keys.items():
        _put(tree, keys_down, value, replaced)
    out = io.StringIO()
    round_trip().dump(tree, out)
    after = out.getvalue() if before is not None else HEAD + out.getvalue()
    return Draft(path=path, before=before, after=after, replaced=replaced)


def _put(tree: CommentedMap, path: tuple[str, ...], value: object, replaced: list[str]) -> None:
    *above, key = path
    section: Any = tree
    for name in above:
        if section.get(name) is None:
            section[name] = CommentedMap()
        section = section[name]
        if not isinstance(section, CommentedMap):
            raise NotUpgradable(f"{'.'.join(above)} is not a section of `key: value` lines")
    known = section.get(key)
    if known == value:
        return
    if known is not None and key != "enabled":
        replaced.append(".".join(path))
    section[key] = value


def _put_model(tree: CommentedMap, entry: Mapping[str, Any], replaced: list[str]) -> None:
    models = tree.get("models")
    if models is None:
        models = tree["models"] = []
    if not isinstance(models, list):
        raise NotUpgradable("models is not a list")
    fresh = CommentedMap(entry)
    for index, known in enumerate(models):
        if isinstance(known, dict) and known.get("name") == entry["name"]:
            if dict(known) != dict(entry):
                replaced.append(f"models[{index}] ({entry['name']})")
                models[index] = fresh
            return
    models.insert(0, fresh)


def backup_draft(config: Draft) -> Draft:
    """Return the file beside a changed configuration that keeps the former one."""
    path = config.path.with_name(f"{config.path.name}.bak")
    return Draft(path=path, before=read(path), after=config.before or "", replaced=())


def env_draft(path: Path, values: Mapping[str, str]) -> Draft:
    """Return `.env` with variables set; all other lines stay.

    Raises:
        NotUpgradable: The file is there and cannot be read.
    """
    before = read(path)
    known = dotenv_values(stream=io.StringIO(before or ""))
    lines = (before or "").splitlines()
    replaced: list[str] = []
    for name, value in values.items():
        if known.get(name) == value:
            continue
        if known.get(name):
            replaced.append(name)
        line = f"{name}={quoted(value)}"
        at = [i for i, text in enumerate(lines) if re.match(rf"(export\s+)?{name}\s*=", text)]
        if at:
            lines[at[-1]] = line
        else:
            lines.append(line)
    after = "".join(f"{line}\n" for line in lines)
    unchanged = all(known.get(name) == value for name, value in values.items())
    after = before if unchanged and before is not None else after
    return Draft(path=path, before=before, after=after, replaced=replaced)


def quoted(value: str) -> str:
    r"""Return a value as it stands behind `NAME=`, in quotes where it needs them.

    >>> quoted("xoxb-1:2"), quoted("a b#c"), quoted("it's")
    ('xoxb-1:2', "'a b#c'", "'it\\'s'")
    """
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def write(drafts: Sequence[Draft]) -> None:
    """Put the files in place, each whole or not at all; readable by nobody else where they are new or hold secrets.

    Raises:
        OSError: The folder refuses. Nothing was replaced then, or only the first files were.
    """
    ready: list[tuple[Path, Path]] = []
    try:
        for draft in drafts:
            if draft.changed:
                target = draft.path.resolve()
                handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
                ready.append((Path(name), target))
                _fill(handle, draft, target)
        for temporary, target in ready:
            temporary.replace(target)
    finally:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)


def _fill(handle: int, draft: Draft, target: Path) -> None:
    """Write the text to an open file; it is private unless another was chosen for the configuration."""
    holds_secrets = target.name == ENV_FILE
    mode = PRIVATE if draft.before is None or holds_secrets else target.stat().st_mode & 0o777
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(draft.after)
        file.flush()
        os.fchmod(handle, mode)
        os.fsync(handle)
