"""MemoryStore: memory documents on disk, one folder per scope. Blocking: call it in worker threads.

`{root}/{folder}/memory.json` is the scope's document. Next to it, `agents/{name}.json` holds the documents of custom
agents, and the file `scope` holds the scope's name. Files have mode 0600, folders 0700.
"""

import fcntl
import hashlib
import json
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.atomic_write import write_atomically
from agent.errors import MemoryInvalid, MemoryUnavailable
from agent.memory.schema import (
    EMPTY_DOCUMENT,
    MemoryDocument,
    document_from_json,
    document_to_json,
    number_facts,
)
from agent.memory.scope import MemoryScope, is_agent_name
from agent.memory.shared import SharedMemory

log = logging.getLogger(__name__)

MAX_BYTES = 8_000_000
"""Largest accepted file: 1000 facts and 6 sections take at most 5 MB."""

MAX_CACHED = 512
LOCK = ".lock"
"""A process locks this file while it changes a document, because nodes may share the folder."""

_NUMBERS = "numbers:"

_FileVersion = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScopeInfo:
    """Summary of a scope that has memory."""

    scope: str
    agents: tuple[str, ...]
    last_updated: str
    facts: int


class MemoryStore:
    """Reads and updates documents. Caches a document until its file changes.

    Args:
        root: The folder; created on the first change. Other processes may use it at the same time.
        shared: Copies the folder between nodes; None on a single node.
    """

    def __init__(self, root: Path, shared: SharedMemory | None = None) -> None:
        self._root = root
        self._shared = shared
        self._cache: OrderedDict[Path, tuple[_FileVersion, MemoryDocument]] = OrderedDict()
        self._changing = threading.Lock()
        self._looking = threading.Lock()

    def read(self, scope: MemoryScope) -> MemoryDocument:
        """Return a document; an empty one if there is none. Moves an invalid file aside.

        Raises:
            MemoryUnavailable: A disk error.
        """
        path = self._path(scope)
        self._fetch(scope)
        try:
            return self._read(path)
        except MemoryInvalid:
            with self._changing:
                return self._read_or_move_aside(path)

    def update(
        self, scope: MemoryScope, change: Callable[[MemoryDocument], MemoryDocument]
    ) -> MemoryDocument:
        """Atomically replace a document with the result of a function, and return it.

        Nothing is written if the function returns its argument or raises. If another node changes the document
        in the meantime, the function is called again.

        Raises:
            MemoryUnavailable: A disk error. The document is unchanged.
        """
        path = self._path(scope)
        with self._alone():
            while True:
                self._fetch(scope)
                before = self._read_or_move_aside(path)
                after = change(before)
                if after is before:
                    return after
                after = self._number(scope, before, after)
                self._write(scope, path, after)
                if self._store(scope):
                    return after

    def delete(self, scope: MemoryScope) -> None:
        """Delete a document. Without an agent, delete the whole scope, including files that were moved aside.

        Raises:
            MemoryUnavailable: A disk error.
        """
        with self._alone(), _log_disk_errors("removed"):
            is_done = False
            while not is_done:
                self._fetch(scope)
                self._keep_last_number(scope)
                if scope.agent is None:
                    self._remove_scope(scope)
                else:
                    self._path(scope).unlink(missing_ok=True)
                is_done = self._store(scope)

    def clear_cache(self) -> None:
        """Clear the cache."""
        with self._looking:
            self._cache.clear()

    def list_scopes(self) -> list[MemoryScopeInfo]:
        """Return the scopes that have memory, sorted by name.

        Raises:
            MemoryUnavailable: A disk error.
        """
        if self._shared is not None:
            self._shared.fetch_all()
        with _log_disk_errors("listed"):
            folders = list(self._root.iterdir()) if self._root.is_dir() else []
        found = [info for folder in folders for info in self._scope_info(folder)]
        return sorted(found, key=lambda info: info.scope)

    def _fetch(self, scope: MemoryScope) -> None:
        if self._shared is not None:
            self._shared.fetch(scope)

    def _store(self, scope: MemoryScope) -> bool:
        """Store a changed document. Return False, and undo the change, if another node changed it first."""
        return self._shared is None or self._shared.store(scope)

    def _scope_info(self, folder: Path) -> Iterator[MemoryScopeInfo]:
        try:
            scope = (folder / "scope").read_text("utf-8")
        except (OSError, ValueError):
            return
        if MemoryScope(scope=scope).folder != folder.name or scope.startswith(_NUMBERS):
            return
        agents = sorted(
            path.stem for path in (folder / "agents").glob("*.json") if is_agent_name(path.stem)
        )
        document = self.read(MemoryScope(scope=scope))
        yield MemoryScopeInfo(
            scope=scope,
            agents=tuple(agents),
            last_updated=document.last_updated,
            facts=len(document.facts),
        )

    def _number(
        self, scope: MemoryScope, before: MemoryDocument, after: MemoryDocument
    ) -> MemoryDocument:
        """Return a changed document in which facts keep their numbers and new facts have new ones."""
        kept = _numbers_scope(scope)
        self._fetch(kept)
        last = max(self._read_or_move_aside(self._path(kept)).last_number, self._last_number(scope))
        known = {fact.id: fact.number for fact in before.facts}
        return number_facts(replace(after, last_number=last), known)

    def _last_number(self, scope: MemoryScope) -> int:
        """Return the highest fact number of a scope. Its agents share the numbers."""
        folder = self._root / scope.folder
        paths = [folder / "memory.json", *(folder / "agents").glob("*.json")]
        return max(self._read_or_move_aside(path).last_number for path in paths)

    def _keep_last_number(self, scope: MemoryScope) -> None:
        """Before a scope is deleted, keep its last number, so that `/forget 3` never means a fact learned later."""
        last = self._last_number(scope)
        kept = _numbers_scope(scope)
        self._fetch(kept)
        known = self._read_or_move_aside(self._path(kept))
        if last > known.last_number:
            self._write(kept, self._path(kept), replace(known, last_number=last))
            self._store(kept)

    def _path(self, scope: MemoryScope) -> Path:
        folder = self._root / scope.folder
        if scope.agent is None:
            return folder / "memory.json"
        return folder / "agents" / f"{scope.agent}.json"

    def _read(self, path: Path) -> MemoryDocument:
        with _log_disk_errors("read"):
            try:
                found = path.stat()
            except FileNotFoundError:
                return EMPTY_DOCUMENT
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            kept = self._from_cache(path, seen)
            if kept is not None:
                return kept
            if found.st_size > MAX_BYTES:
                raise MemoryInvalid("the file is too large")
            raw = path.read_bytes()
        document = _parse(raw)
        self._to_cache(path, seen, document)
        return document

    def _read_or_move_aside(self, path: Path) -> MemoryDocument:
        """Read under the lock, so that a valid file written in the meantime is not moved aside."""
        try:
            return self._read(path)
        except MemoryInvalid:
            with _log_disk_errors("kept aside"):
                _move_aside(path)
            return EMPTY_DOCUMENT

    def _write(self, scope: MemoryScope, path: Path, document: MemoryDocument) -> None:
        text = json.dumps(document_to_json(document), ensure_ascii=False, allow_nan=False, indent=1)
        folder = self._root / scope.folder
        with _log_disk_errors("written"):
            for needed in (self._root, folder, path.parent):
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = folder / "scope"
            if not name.exists():
                write_atomically(name, scope.scope.encode())
            write_atomically(path, text.encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock out other worker threads and processes, so that only this block can change documents."""
        with self._changing:
            with _log_disk_errors("locked"):
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = (self._root / LOCK).open("ab")
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def _remove_scope(self, scope: MemoryScope) -> None:
        folder = self._root / scope.folder
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)

    def _from_cache(self, path: Path, seen: _FileVersion) -> MemoryDocument | None:
        with self._looking:
            found = self._cache.get(path)
            if found is None or found[0] != seen:
                return None
            self._cache.move_to_end(path)
            return found[1]

    def _to_cache(self, path: Path, seen: _FileVersion, document: MemoryDocument) -> None:
        with self._looking:
            self._cache[path] = (seen, document)
            self._cache.move_to_end(path)
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)


def _numbers_scope(scope: MemoryScope) -> MemoryScope:
    """Return the scope whose empty document keeps the last number of a deleted scope. Its name identifies nobody."""
    return MemoryScope(scope=_NUMBERS + hashlib.sha256(scope.scope.encode()).hexdigest()[:32])


def _parse(raw: bytes) -> MemoryDocument:
    try:
        return document_from_json(json.loads(raw))
    except (ValueError, RecursionError):
        raise MemoryInvalid("the file is not JSON") from None


def _move_aside(path: Path) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.stem}.{stamp}.unreadable")
    path.rename(aside)
    log.error("Moved an invalid memory document to %s", aside)


@contextmanager
def _log_disk_errors(what: str) -> Iterator[None]:
    """Log disk errors and raise MemoryUnavailable instead."""
    try:
        yield
    except OSError as error:
        log.exception("Memory could not be %s", what)
        raise MemoryUnavailable from error
