"""WriteRetry: lets a run whose data cannot be written wait until the database works again."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import anyio

from store.errors import StoreUnavailable

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
"""Shortest and longest pause between two attempts, seconds. Each pause is twice as long as the one before."""

log = logging.getLogger(__name__)


class WriteRetry:
    """Repeats the writes of one run while the database cannot be written, for example because the disk is full.

    The run stays `running` meanwhile, and nothing that its graph did is lost or done twice. The contexts of LangGraph's
    tasks keep this object after the end, so it has no reference to the run.

    Attributes:
        outage: Why the run waits for the database. "" = it does not wait.
    """

    def __init__(self, run_id: str) -> None:
        self.outage = ""
        self._run_id = run_id
        self._waiting = 0
        self._has_given_up = False
        self._given_up: anyio.Event | None = None

    async def __call__(self, write: Callable[[], Awaitable[None]]) -> None:
        """Await `write()` until it succeeds.

        Raises:
            StoreUnavailable: The run gave up before it could be written.
        """
        try:
            await write()
        except StoreUnavailable as error:
            await self._repeat(write, error)

    def give_up(self) -> None:
        """From now on, try each write only once, because the run is canceled."""
        self._has_given_up = True
        if self._given_up is not None:
            self._given_up.set()

    async def _repeat(self, write: Callable[[], Awaitable[None]], error: StoreUnavailable) -> None:
        if not self._waiting:
            log.error("Run %s waits for the database: %s", self._run_id, error)
        self._waiting += 1
        self.outage = str(error)
        given_up = self._given_up = self._given_up or anyio.Event()
        try:
            for attempt in count():
                with anyio.move_on_after(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0**attempt)):
                    if not self._has_given_up:
                        await given_up.wait()
                if self._has_given_up:
                    raise error
                with suppress(StoreUnavailable):
                    await write()
                    break
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.outage = ""
        log.info("Run %s continues: the database works again.", self._run_id)
