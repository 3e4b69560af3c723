"""Waiting between attempts: backoff, and store calls that are repeated until the store is back."""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio

from store.errors import RowConflict, RowNotFound, StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_s` up to `cap_s`, less a random part of at most `jitter`.

    >>> calm = Backoff(first_s=0.5, cap_s=15.0, jitter=0.0)
    >>> [calm.wait_s(attempt) for attempt in (1, 2, 3, 4, 5, 6, 7)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    """

    first_s: float = 0.5
    cap_s: float = 15.0
    jitter: float = 0.1

    def wait_s(self, attempt: int) -> float:
        """Return the seconds to wait after the given failed attempt (1 = the first)."""
        whole = min(self.cap_s, self.first_s * 2.0 ** min(max(attempt, 1) - 1, 30))
        return whole * (1 - self.jitter * random.random())  # noqa: S311 - spreads load, guards nothing


class StoreRetry:
    """Repeats store calls until they succeed, and logs when the store fails and when it is back.

    Args:
        name: What waits for the store, for the log.
        backoff: The waits between attempts.
    """

    def __init__(self, name: str, backoff: Backoff | None = None) -> None:
        self._name = name
        self._backoff = backoff or Backoff(first_s=0.25, cap_s=5.0)
        self._failures = 0

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Await `operation()` until it raises no StoreError; return its result.

        Raises:
            RowNotFound, RowConflict: answers of the store, which a repetition does not change.
        """
        while True:
            try:
                result = await operation()
            except (RowNotFound, RowConflict):
                raise
            except StoreError as error:
                await self.wait(error)
            else:
                self.recovered()
                return result

    async def wait(self, error: StoreError) -> None:
        """Wait after a failed store call, longer each time in a row."""
        if not self._failures:
            log.error("%s: waiting for the store: %s", self._name, error)
        self._failures += 1
        await anyio.sleep(self._backoff.wait_s(self._failures))

    def recovered(self) -> None:
        """Note that the store works."""
        if self._failures:
            log.info("%s: the store works again", self._name)
        self._failures = 0
