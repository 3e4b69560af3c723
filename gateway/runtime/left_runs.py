"""LeftRuns: closes the runs of processes that ended without closing them."""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

import anyio

from store.errors import StoreUnavailable
from store.nodes import Nodes
from store.runs import RunStore

RETRY_S = 0.5
"""After the database could not be used, seconds."""

_log = logging.getLogger(__name__)


class LeftRuns:
    """Marks the runs of dead processes as interrupted.

    Args:
        rows: The runs' rows.
        nodes: The processes that share the database.
        now: Returns the time, Unix seconds.
    """

    def __init__(self, rows: RunStore, nodes: Nodes, now: Callable[[], float]) -> None:
        self._rows = rows
        self._nodes = nodes
        self._now = now

    async def interrupt(self) -> None:
        """Close what dead processes left open: runs become `interrupted`, threads idle. Raises StoreUnavailable."""
        left = await self._rows.interrupt_unfinished(now=self._now())
        if left:
            _log.warning("%d run(s) were interrupted when their process ended.", left)

    async def watch(self) -> None:
        """Close what other nodes leave open, as soon as they are ended. A SQLite file has no other nodes."""
        if self._nodes.number:
            await on_each_change(self._nodes, self.interrupt)


async def on_each_change(nodes: Nodes, work: Callable[[], Awaitable[None]]) -> NoReturn:
    """Do something now, whenever the list of living nodes changes, and again after the database could not be used."""
    while True:
        known = nodes.living
        try:
            await work()
        except StoreUnavailable:
            await anyio.sleep(RETRY_S)
            continue
        if nodes.living == known:
            await nodes.wait_change()
