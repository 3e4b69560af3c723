"""The nodes of a PostgreSQL database, for the event loop (`store/postgres/membership.py` blocks)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import anyio.to_thread
from typing_extensions import override

from store.errors import StoreUnavailable
from store.nodes import Node, Nodes
from store.postgres.membership import MemberNode

NAME_POLL_S = 0.25
"""How often to try again to take a name that another node has, seconds."""


class PostgresNodes(Nodes):
    """The processes that share a PostgreSQL database.

    Args:
        node: This process, before it joins.
    """

    def __init__(self, node: MemberNode) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._changed = anyio.Event()
        node.on_change = partial(self._call_soon, self._end_wait)

    @property
    @override
    def number(self) -> int:
        return self._node.number

    @property
    @override
    def living(self) -> Sequence[Node]:
        return self._node.living

    @override
    @asynccontextmanager
    async def exclusive(
        self, name: str, on_wait: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        with anyio.CancelScope() as scope:
            while not await self._try_name(name, scope):
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                await anyio.sleep(NAME_POLL_S)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._node.give_name, name)

    @override
    async def mark_ready(self) -> None:
        await anyio.to_thread.run_sync(self._node.mark_ready)

    @override
    async def leave(self) -> None:
        await anyio.to_thread.run_sync(self._node.leave)

    @override
    async def wait_change(self) -> None:
        await self._changed.wait()

    async def _try_name(self, name: str, scope: anyio.CancelScope) -> bool:
        """Take a name. Shielded, so that a cancellation cannot lose a name that was taken."""
        on_lost = partial(self._call_soon, scope.cancel)
        with suppress(StoreUnavailable), anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(self._node.try_name, name, on_lost)
        return False

    def _end_wait(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # The event loop is closed.
            self._loop.call_soon_threadsafe(callback)
