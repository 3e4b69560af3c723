"""One lock for each (sandbox, path) that is being changed, and none for the others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0


class PathLocks:
    """Serialises changes of one file. Held in worker threads, for the time of one small file operation."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        """Return how many files are locked or waited for now."""
        return len(self._entries)

    @contextmanager
    def locked(self, sandbox_id: str, path: str) -> Iterator[None]:
        """Hold the lock of one file; its entry goes when the last user leaves."""
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
