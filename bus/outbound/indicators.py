"""Working, done and failure indicators: reactions, typing, statuses."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from bus.errors import DeliveryError, unwrapped
from bus.messages import ReplyTarget
from bus.platform import Adapter, SupportsIndicators

log = logging.getLogger(__name__)

INDICATOR_DEADLINE_S = 10.0
"""Time for one call; an indicator that takes longer is given up."""

MAX_LOGGED_KINDS = 100
"""Kinds of failure that are logged, once each."""


class IndicatorUpdater:
    """Shows and refreshes indicators, on platforms that have them. No failure of one leaves this class."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    @asynccontextmanager
    async def working(self, adapter: Adapter, place: ReplyTarget) -> AsyncIterator[None]:
        """Show the working indicator inside the block; after it no call is made any more."""
        if not isinstance(adapter, SupportsIndicators):
            yield
            return
        with unwrapped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(
                    self._refresh, adapter, place, adapter.capabilities.indicator_refresh_s
                )
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()

    async def finished(self, adapter: Adapter, place: ReplyTarget, *, ok: bool) -> None:
        """Replace the working indicator with a done or failure indicator."""
        if not isinstance(adapter, SupportsIndicators):
            return
        await self._call(adapter, lambda: adapter.show_finished(place, ok=ok))

    async def _refresh(
        self, adapter: SupportsIndicators, place: ReplyTarget, refresh_s: float
    ) -> None:
        while await self._call(adapter, lambda: adapter.show_working(place)):
            if refresh_s <= 0:
                return
            await anyio.sleep(refresh_s)

    async def _call(self, adapter: object, call: Callable[[], Awaitable[None]]) -> bool:
        """Make one call; return whether a later one may work. Raises nothing."""
        name = type(adapter).__name__
        try:
            with unwrapped(), anyio.fail_after(INDICATOR_DEADLINE_S):
                await call()
        except (DeliveryError, TimeoutError) as error:
            kind = f"{name}: {error}"
            if kind not in self._logged and len(self._logged) < MAX_LOGGED_KINDS:
                self._logged.add(kind)
                log.warning("indicator failed: %s", kind)
            return isinstance(error, TimeoutError) or error.retryable
        except Exception:
            log.exception("indicator of %s failed unexpectedly", name)
            return False
        return True
