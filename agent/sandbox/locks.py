"""Per-file locks: one for each (sandbox, path) that is being changed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class PathLocks:
    """Serializes changes to a file. Held in worker threads for one small file operation."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        """Return how many files are locked or waited for."""
        return len(self._entries)

    @contextmanager
    def locked(self, sandbox_id: str, path: str) -> Iterator[None]:
        """Hold the lock of one file; the last user removes it."""
        key = (sandbox_id, path)
        with self._guard:
            entry = self._entries.setdefault(key, _Entry())
            entry.users += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._guard:
                entry.users -= 1
                if entry.users == 0:
                    del self._entries[key]
