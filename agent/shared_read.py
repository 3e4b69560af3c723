"""A blocking read that several tasks share."""

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class SharedRead(Generic[T]):
    """Reads in a worker thread, once for all tasks that asked before the read began.

    So what a task gets was read after it asked, as if it had read alone.

    Args:
        read: Reads. Blocking. What it raises reaches one of the tasks; the next one reads again.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = anyio.Lock()
        self._started = 0
        self._last: tuple[int, T] | None = None

    async def __call__(self) -> T:
        """Return what was read."""
        asked = self._started
        async with self._lock:
            if self._last is not None and self._last[0] > asked:
                return self._last[1]
            self._started = number = self._started + 1
            value = await anyio.to_thread.run_sync(self._read)
            self._last = (number, value)
            return value
