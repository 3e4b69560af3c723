"""LazyEvent: an event that takes memory only while a task waits for it."""

import anyio
from anyio.lowlevel import checkpoint


class LazyEvent:
    """Like `anyio.Event`, but without its 900 bytes. Thousands of ended runs each keep several of these."""

    __slots__ = ("_is_set", "_waited_for")

    def __init__(self) -> None:
        self._is_set = False
        self._waited_for: anyio.Event | None = None

    def set(self) -> None:
        """Set it and wake up the waiting tasks."""
        self._is_set = True
        waited_for, self._waited_for = self._waited_for, None
        if waited_for is not None:
            waited_for.set()

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._is_set

    async def wait(self) -> None:
        """Wait until the event is set."""
        if self._is_set:
            await checkpoint()
            return
        if self._waited_for is None:
            self._waited_for = anyio.Event()
        await self._waited_for.wait()
