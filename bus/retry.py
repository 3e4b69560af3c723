"""Retries: backoff, patience with a run, and store calls that are repeated until the store works."""

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import TypeVar, cast

import anyio

from bus.errors import AgentThreadBusy, AgentThreadNotFound, RunError, is_store_outage
from store.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")
Store = TypeVar("Store")

MAX_CREATIONS = 5
"""How many times one turn may create a thread that the server does not have."""

PATIENCE_S = 60.0
"""How long one turn waits for an unreachable server, seconds."""

BUSY_PATIENCE_S = 900.0
"""How long to wait for a thread that another run holds, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_s` up to `cap_s`, reduced by a random fraction of at most `jitter`.

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
    """Repeats store calls until they succeed, and logs when the store fails and when it works again.

    Args:
        name: Who waits for the store, for the log.
        backoff: The waits between attempts.
    """

    def __init__(self, name: str, backoff: Backoff | None = None) -> None:
        self._name = name
        self._backoff = backoff or Backoff(first_s=0.25, cap_s=5.0)
        self._failures = 0

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat `operation()` until it raises no StoreError. Return its result.

        Raises:
            RowNotFound, RowConflict, ValueRefused: The store's answer, which a retry would not change.
        """
        while True:
            try:
                result = await operation()
            except StoreError as error:
                if not is_store_outage(error):
                    raise
                await self.wait(error)
            else:
                self.recovered()
                return result

    async def wait(self, error: StoreError) -> None:
        """Wait after a failed store call, longer after each consecutive failure."""
        if not self._failures:
            log.error("%s: waiting for the store: %s", self._name, error)
        self._failures += 1
        await anyio.sleep(self._backoff.wait_s(self._failures))

    def recovered(self) -> None:
        """Record that the store works."""
        if self._failures:
            log.info("%s: the store works again", self._name)
        self._failures = 0


class RunPatience:
    """Decides how long to retry a run that cannot be started or followed.

    Attributes:
        lost_thread: Whether the last error says that the server does not have the thread.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.lost_thread = False
        self._patience_s = patience_s
        self._backoff = Backoff(first_s=0.25, cap_s=5.0)
        self._tries = 0
        self._began_at = anyio.current_time()

    def wait_s(self, error: RunError, *, is_outage: bool) -> float | None:
        """Return how long to wait before the next attempt, seconds; None = give up.

        `is_outage`: whether our own database is failing. The gateway needs the database too, and the message has
        already been acknowledged, so the patience starts over once the database works again.
        """
        self._tries += 1
        self.lost_thread = isinstance(error, AgentThreadNotFound)
        if self.lost_thread and self._tries <= MAX_CREATIONS:
            return 0.0
        if is_outage:
            self._began_at = anyio.current_time()
        patience_s = BUSY_PATIENCE_S if isinstance(error, AgentThreadBusy) else self._patience_s
        if not error.retryable or anyio.current_time() - self._began_at >= patience_s:
            return None
        return self._backoff.wait_s(self._tries)


def retried(store: Store, name: str) -> Store:
    """Wrap a store or an object that calls stores, so that each asynchronous call is repeated until the store works.

    `name`: who waits for the store, for the log.
    """
    return cast("Store", _RetryingProxy(store, name))


class _RetryingProxy:
    def __init__(self, store: object, name: str) -> None:
        self._store = store
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        found = getattr(self._store, attribute)
        if not callable(found):
            return found

        def call(*args: object, **named: object) -> object:
            result = found(*args, **named)
            if not isinstance(result, CoroutineType):
                return result
            return self._until_it_works(attribute, result, partial(found, *args, **named))

        return call

    async def _until_it_works(
        self,
        attribute: str,
        first: Awaitable[object],
        again: Callable[[], Awaitable[object]],
    ) -> object:
        try:
            return await first
        except StoreError as error:
            if not is_store_outage(error):
                raise
            retry = StoreRetry(f"{self._name} ({attribute})")
            await retry.wait(error)
            return await retry.call(again)
