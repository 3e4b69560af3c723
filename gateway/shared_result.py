"""SharedResult: an expensive result, made once for all callers that ask for it at about the same time."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class SharedResult(Generic[T]):
    """The latest result, and the time when it was made.

    Args:
        fresh_s: How long a result is reused, seconds.
        now: The wall clock.
    """

    def __init__(self, fresh_s: float, now: Callable[[], float] = time.time) -> None:
        self._fresh_s = fresh_s
        self._now = now
        self._making = anyio.Lock()
        self._latest: tuple[T, float] | None = None
        self._key: object = None

    async def get(
        self, make: Callable[[], Awaitable[T]], *, fresh_s: float | None = None, key: object = None
    ) -> tuple[T, float]:
        """Return a result, and the time when it was made (Unix seconds). Raises what `make` raises.

        Args:
            make: Makes the result.
            fresh_s: Replaces the usual `fresh_s`.
            key: A result that was made for another key is not reused.
        """
        within_s = self._fresh_s if fresh_s is None else fresh_s
        async with self._making:
            latest = self._latest if key == self._key else None
            if latest is None or not 0 <= self._now() - latest[1] < within_s:
                latest = self._latest = await make(), self._now()
                self._key = key
            return latest
