"""Locks by key: one task at a time for each key. Tasks with different keys do not wait for each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio


@dataclass(slots=True)
class _Entry:
    lock: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    users: int = 0


class KeyedLock:
    """Grants each key's lock in the order of the requests. Unused keys take no memory."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a key inside the block."""
        entry = self._entries.setdefault(key, _Entry())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._entries[key]
