"""The extensions file: MCP servers, skills switched off, interceptors. People edit it, and the REST API does.

Its text is JSON: `{"mcpServers": {name: {...}}, "skills": {name: {"enabled": false}}, "mcpInterceptors": [...]}`.
Values are given as they stand there: `$NAME` is resolved by who uses them.
"""

import hashlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import anyio.to_thread

from agent.errors import ExtensionsInvalid, ExtensionsWriteFailed

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 4 * 1024 * 1024
"""A larger file is no such file: real ones have a few kilobytes."""

SERVERS: Final = "mcpServers"
SKILLS: Final = "skills"
INTERCEPTORS: Final = "mcpInterceptors"

_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {SERVERS: "mcp_servers", INTERCEPTORS: "mcp_interceptors"}
)
_ABSENT: Final = "absent"

T = TypeVar("T")

ExtensionsDocument = dict[str, Any]
"""The file's JSON object, unknown keys included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """What the file says.

    Attributes:
        signature: Changes exactly when the file's content does; `absent` without a file.
        mcp_servers: MCP servers by name, as written.
        skills: Whether a skill is switched on; one that is not named here is.
        interceptors: `module:attribute` of what stands around MCP calls.
        error: Why the file cannot be read, for people; what it said before holds then. None = all is well.
    """

    signature: str = _ABSENT
    mcp_servers: Mapping[str, ExtensionsDocument] = field(
        default_factory=lambda: MappingProxyType({})
    )
    skills: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    interceptors: tuple[str, ...] = ()
    error: str | None = None


class ExtensionsFile:
    """The file, read when it is asked for and written whole.

    Args:
        path: Where it is; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = Extensions()
        self._seen = _ABSENT
        self._lock = threading.Lock()

    async def load(self) -> Extensions:
        """Return what the file says now, read in a worker thread."""
        return await anyio.to_thread.run_sync(self.read)

    def read(self) -> Extensions:
        """Return what the file says now. Blocking: call it in a worker thread.

        A file that cannot be used changes nothing: what held before holds on, with `error` set.
        """
        with self._lock:
            return self._read()

    async def update(self, change: Callable[[ExtensionsDocument], None]) -> Extensions:
        """Change the file in one step: other keys stay, the file is for this user alone (0600).

        Args:
            change: Gets the JSON object and changes it in place, see `section`; what it raises stops the update.

        Returns:
            What the file says then.

        Raises:
            ExtensionsInvalid: The file holds something else than such an object; it is left alone.
            ExtensionsWriteFailed: The disk refused.
        """
        return await anyio.to_thread.run_sync(self._update, change)

    def _update(self, change: Callable[[ExtensionsDocument], None]) -> Extensions:
        with self._lock:
            raw = self._bytes()
            document = {} if raw is None else _document(raw)
            _parsed(document, _ABSENT)
            change(document)
            _parsed(document, _ABSENT)
            text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
            try:
                _replace(self._path, text.encode())
            except OSError as error:
                logger.warning("%s cannot be written: %s", self._path, error)
                raise ExtensionsWriteFailed from error
            return self._read()

    def _read(self) -> Extensions:
        try:
            raw = self._bytes()
        except ExtensionsInvalid as error:
            return self._holding("unreadable", error)
        signature = _ABSENT if raw is None else hashlib.sha256(raw).hexdigest()
        if signature == self._seen:
            return self._held
        try:
            held = Extensions() if raw is None else _parsed(_document(raw), signature)
        except ExtensionsInvalid as error:
            return self._holding(signature, error)
        self._held, self._seen = held, signature
        return held

    def _holding(self, signature: str, error: ExtensionsInvalid) -> Extensions:
        """Keep what held before; tell it once for every state of the file."""
        if signature != self._seen:
            logger.error("%s: %s; what it said before holds on", self._path, error)
        old = self._held
        self._seen = signature
        self._held = Extensions(
            signature=old.signature,
            mcp_servers=old.mcp_servers,
            skills=old.skills,
            interceptors=old.interceptors,
            error=error.user_message,
        )
        return self._held

    def _bytes(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ExtensionsInvalid(
                f"the extensions file cannot be read: {error.strerror}"
            ) from error
        if len(raw) > MAX_BYTES:
            raise ExtensionsInvalid(f"the extensions file has more than {MAX_BYTES} bytes")
        return raw


def section(document: ExtensionsDocument, name: str) -> ExtensionsDocument:
    """Return a part of the JSON object to change it; it is made when it is not there.

    Args:
        document: What `update` gives.
        name: `SERVERS` or `SKILLS`; a part that stands there under its other name is found.

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
        raise ExtensionsInvalid("the extensions file is not JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise ExtensionsInvalid("the extensions file must hold one JSON object")
    return found


def _parsed(document: ExtensionsDocument, signature: str) -> Extensions:
    servers: ExtensionsDocument = _part(document, SERVERS, dict)
    skills: ExtensionsDocument = _part(document, SKILLS, dict)
    interceptors: list[object] = _part(document, INTERCEPTORS, list)
    for name, entry in servers.items():
        if not isinstance(entry, dict):
            logger.error("the MCP server %.80r is left out: its entry is no object", name)
    return Extensions(
        signature=signature,
        mcp_servers=MappingProxyType({n: e for n, e in servers.items() if isinstance(e, dict)}),
        skills=MappingProxyType({name: _switched_on(entry) for name, entry in skills.items()}),
        interceptors=tuple(entry for entry in interceptors if isinstance(entry, str)),
    )


def _part(document: ExtensionsDocument, name: str, kind: type[T]) -> T:
    key = _key(document, name)
    found = document.get(key)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        wanted = "a list" if kind is list else "an object"
        raise ExtensionsInvalid(f"the extensions file: {key} must be {wanted}")
    return found


def _switched_on(entry: object) -> bool:
    enabled = entry.get("enabled", True) if isinstance(entry, dict) else entry
    return enabled is not False and str(enabled).strip().lower() not in ("false", "no", "off", "0")


def _replace(path: Path, content: bytes) -> None:
    """Put the content in the file's place at once; a link is followed, so that it stays one."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
