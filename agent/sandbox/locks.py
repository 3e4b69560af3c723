"""File locks, one for each (sandbox, path) while it is changed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class PathLocks:
    """Serializes changes to a file. Worker threads hold a lock for one small file operation."""

    def __init__(self) -> None:
        # Weak, so that a lock exists only while a thread holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    def __len__(self) -> int:
        """Return how many files are locked or have waiting threads."""
        return len(self._locks)

    @contextmanager
    def locked(self, sandbox_id: str, path: str) -> Iterator[None]:
        """Hold the lock of one file."""
        with self._guard:
            lock = self._locks.setdefault((sandbox_id, path), threading.Lock())
        with lock:
            yield
