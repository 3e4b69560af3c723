"""The extensions file: MCP servers, disabled skills, MCP interceptors. People and the REST API edit it.

Format: `{"mcpServers": {name: {...}}, "skills": {name: {"enabled": false}}, "mcpInterceptors": [...]}`.
This module returns values as written; callers expand `$NAME`.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import anyio.to_thread

from agent.atomic_write import write_atomically
from agent.errors import ExtensionsInvalid, ExtensionsWriteFailed

log = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""Largest accepted file, bytes. Real files have a few kilobytes."""

SERVERS = "mcpServers"
SKILLS = "skills"
INTERCEPTORS = "mcpInterceptors"

_ALIASES: Mapping[str, str] = MappingProxyType(
    {SERVERS: "mcp_servers", INTERCEPTORS: "mcp_interceptors"}
)
_ABSENT = "absent"

T = TypeVar("T")

ExtensionsDocument = dict[str, Any]
"""The file's JSON object, unknown keys included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Content of the file.

    Attributes:
        signature: Hash of the content; `absent` without a file.
        mcp_servers: MCP servers by name, as written.
        skills: Whether a skill is enabled; the default is true.
        interceptors: `module:attribute` of interceptors of MCP calls.
        error: Why the file is invalid, for people. The other fields then keep their values. None = valid.
    """

    signature: str = _ABSENT
    mcp_servers: Mapping[str, ExtensionsDocument] = field(
        default_factory=lambda: MappingProxyType({})
    )
    skills: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    interceptors: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Disabled:
    """Names that files other than the one in use disable."""

    skills: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()

    def __or__(self, other: "_Disabled") -> "_Disabled":
        return _Disabled(self.skills | other.skills, self.servers | other.servers)


class ExtensionsFile:
    """Reads and updates the file. It may appear, vanish or move between its places while the service runs.

    The first place with a file is in use. A server or skill also stays disabled if a file in another place disables it,
    or if the previous file in use disabled it before it moved or vanished. Only `"enabled": true` in the file in use
    enables it again.

    Args:
        places: The file's possible paths. The first existing one is used; new files are created in the last one.
    """

    def __init__(self, *places: Path) -> None:
        self._places = places
        self._path = places[-1]
        self._current = Extensions()
        self._signature = _ABSENT
        self._kept = _Disabled()
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """The path that was in use at the last read, or the path where a new file would be created."""
        return self._path

    async def load(self) -> Extensions:
        """Return the current content, read in a worker thread."""
        return await anyio.to_thread.run_sync(self.read)

    def read(self) -> Extensions:
        """Return the current content. Blocking: call it in a worker thread.

        If the file is invalid, the previous content is returned with `error` set.
        """
        with self._lock:
            return self._read()

    async def update(self, change: Callable[[ExtensionsDocument], None]) -> Extensions:
        """Change the file atomically. Keeps other keys, and sets the mode to 0600.

        Args:
            change: Changes the JSON object in place; see `section`. An exception cancels the update.

        Returns:
            The new content.

        Raises:
            ExtensionsInvalid: The file is invalid. It is not changed.
            ExtensionsWriteFailed: The file cannot be written.
        """
        return await anyio.to_thread.run_sync(self._update, change)

    def _update(self, change: Callable[[ExtensionsDocument], None]) -> Extensions:
        with self._lock:
            self._read()
            raw = _bytes(self._path)
            document = {} if raw is None else _document(raw)
            _parsed(document, _ABSENT)
            change(document)
            _parsed(document, _ABSENT)
            text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
            try:
                write_atomically(self._path, text.encode())
            except OSError as error:
                log.warning("cannot write %s: %s", self._path, error)
                raise ExtensionsWriteFailed from error
            return self._read()

    def _read(self) -> Extensions:
        found: list[tuple[Path, bytes]] = []
        for place in self._places:
            try:
                raw = _bytes(place)
            except ExtensionsInvalid as error:
                if found:
                    log.warning("%s: %s", place, error)
                    continue
                self._path = place
                return self._with_error("unreadable", error)
            if raw is not None:
                found.append((place, raw))
        signature = _signature(found)
        if signature == self._signature:
            return self._current
        path = found[0][0] if found else self._places[-1]
        try:
            document = _document(found[0][1]) if found else {}
            current = _parsed(document, signature)
        except ExtensionsInvalid as error:
            self._path = path
            return self._with_error(signature, error)
        if path != self._path:
            self._kept |= _disabled_in(self._current)
        self._path, self._signature = path, signature
        others = [_disabled_in(_parsed_or_empty(place, raw)) for place, raw in found[1:]]
        self._kept = _not_mentioned(document, self._kept)
        disabled = reduce(or_, map(partial(_not_mentioned, document), others), self._kept)
        self._current = self._with_disabled(current, disabled)
        return self._current

    def _with_disabled(self, current: Extensions, disabled: _Disabled) -> Extensions:
        """Disable the names that another file disables, and log them."""
        servers = disabled.servers & current.mcp_servers.keys()
        if names := sorted(disabled.skills | servers):
            log.warning(
                '%s: still disabled by another or an earlier file: %s. To enable one, set "enabled": true',
                self._path,
                ", ".join(names),
            )
        off = {name: {**current.mcp_servers[name], "enabled": False} for name in servers}
        return replace(
            current,
            mcp_servers=MappingProxyType({**current.mcp_servers, **off}),
            skills=MappingProxyType({**current.skills, **dict.fromkeys(disabled.skills, False)}),
        )

    def _with_error(self, signature: str, error: ExtensionsInvalid) -> Extensions:
        """Return the previous content with an error. Log the error once per version of the file."""
        if signature != self._signature:
            log.error("%s: %s; keeping the previous settings", self._path, error)
        self._signature = signature
        self._current = replace(self._current, error=error.user_message)
        return self._current


def _bytes(path: Path) -> bytes | None:
    """Return a file's content; None = there is no file. Raises ExtensionsInvalid if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ExtensionsInvalid(f"the extensions file cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ExtensionsInvalid(f"the extensions file is larger than {MAX_BYTES} bytes")
    return raw


def _signature(found: Sequence[tuple[Path, bytes]]) -> str:
    if not found:
        return _ABSENT
    digest = hashlib.sha256()
    for path, raw in found:
        digest.update(f"{path}\0{len(raw)}\0".encode("utf-8", "surrogateescape") + raw)
    return digest.hexdigest()


def _parsed_or_empty(path: Path, raw: bytes) -> Extensions:
    try:
        return _parsed(_document(raw), "")
    except ExtensionsInvalid as error:
        log.warning("%s, which is not in use: %s", path, error)
        return Extensions()


def _disabled_in(extensions: Extensions) -> _Disabled:
    servers = extensions.mcp_servers.items()
    return _Disabled(
        frozenset(name for name, is_enabled in extensions.skills.items() if not is_enabled),
        frozenset(name for name, entry in servers if not _is_enabled(entry)),
    )


def _not_mentioned(document: ExtensionsDocument, disabled: _Disabled) -> _Disabled:
    """Return the names that a document neither enables nor disables."""
    skills = document.get(SKILLS) or {}
    servers = document.get(_key(document, SERVERS)) or {}

    def is_open(entry: object) -> bool:
        return isinstance(entry, dict) and "enabled" not in entry

    return _Disabled(
        frozenset(n for n in disabled.skills if n not in skills or is_open(skills[n])),
        frozenset(n for n in disabled.servers if n not in servers or is_open(servers[n])),
    )


def section(document: ExtensionsDocument, name: str) -> ExtensionsDocument:
    """Return a section of the JSON object, to change it. Creates a missing section.

    Args:
        document: The object passed by `update`.
        name: `SERVERS` or `SKILLS`; aliases are found.

    >>> section({"mcp_servers": {"a": {}}}, SERVERS)
    {'a': {}}
    """
    key = _key(document, name)
    if not isinstance(document.get(key), dict):
        document[key] = {}
    found: ExtensionsDocument = document[key]
    return found


def _key(document: ExtensionsDocument, name: str) -> str:
    alias = _ALIASES.get(name)
    return alias if alias is not None and name not in document and alias in document else name


def _document(raw: bytes) -> ExtensionsDocument:
    if not raw.strip():
        return {}
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise ExtensionsInvalid(f"the extensions file is not JSON: {where}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ExtensionsInvalid("the extensions file is not UTF-8 JSON") from error
    if not isinstance(found, dict):
        raise ExtensionsInvalid("the extensions file must be a JSON object")
    return found


def _parsed(document: ExtensionsDocument, signature: str) -> Extensions:
    servers: ExtensionsDocument = _section_of(document, SERVERS, dict)
    skills: ExtensionsDocument = _section_of(document, SKILLS, dict)
    interceptors: list[object] = _section_of(document, INTERCEPTORS, list)
    for name, entry in servers.items():
        if not isinstance(entry, dict):
            log.error("ignoring MCP server %.80r: its entry is not an object", name)
    return Extensions(
        signature=signature,
        mcp_servers=MappingProxyType({n: e for n, e in servers.items() if isinstance(e, dict)}),
        skills=MappingProxyType({name: _is_enabled(entry) for name, entry in skills.items()}),
        interceptors=tuple(entry for entry in interceptors if isinstance(entry, str)),
    )


def _section_of(document: ExtensionsDocument, name: str, kind: type[T]) -> T:
    key = _key(document, name)
    found = document.get(key)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        wanted = "a list" if kind is list else "an object"
        raise ExtensionsInvalid(f"the extensions file: {key} must be {wanted}")
    return found


def _is_enabled(entry: object) -> bool:
    enabled = entry.get("enabled", True) if isinstance(entry, dict) else entry
    return enabled is not False and str(enabled).strip().lower() not in ("false", "no", "off", "0")
