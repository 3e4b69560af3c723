"""One after another for each name, all names at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio


@dataclass(slots=True)
class _Lane:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    users: int = 0


class Lanes:
    """Locks by name, first come, first served; a lane that nobody uses is forgotten."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def lane(self, name: str) -> AsyncIterator[None]:
        """Wait for one's turn in the lane and hold it inside the block."""
        lane = self._lanes.setdefault(name, _Lane())
        lane.users += 1
        try:
            async with lane.lock:
                yield
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[name]
