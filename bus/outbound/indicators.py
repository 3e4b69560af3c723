"""The signs that show a person that work goes on, and that it ended."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bus.errors import DeliveryError
from bus.messages import ReplyTarget
from bus.platform import Adapter, SupportsIndicators

log = logging.getLogger(__name__)

INDICATOR_DEADLINE_S = 10.0
"""A sign that takes longer is not worth waiting for."""


KINDS_KEPT = 100
"""Kinds of failure that are logged once each."""


class IndicatorUpdater:
    """Shows and refreshes working signs; a platform without them is left alone."""

    def __init__(self) -> None:
        self._complained: set[str] = set()

    @asynccontextmanager
    async def working(self, adapter: Adapter, place: ReplyTarget) -> AsyncIterator[None]:
        """Keep the sign up inside the block; after it no sign is sent any more."""
        if not isinstance(adapter, SupportsIndicators):
            yield
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                self._keep_up, adapter, place, adapter.capabilities.indicator_refresh_s
            )
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def finished(self, adapter: Adapter, place: ReplyTarget, *, ok: bool) -> None:
        """Turn the working sign into a done or a failure sign."""
        if not isinstance(adapter, SupportsIndicators):
            return
        try:
            with anyio.fail_after(INDICATOR_DEADLINE_S):
                await adapter.show_finished(place, ok=ok)
        except (DeliveryError, TimeoutError) as error:
            self._complain(adapter.name, error)

    async def _keep_up(
        self, adapter: SupportsIndicators, place: ReplyTarget, refresh_s: float
    ) -> None:
        while True:
            try:
                with anyio.fail_after(INDICATOR_DEADLINE_S):
                    await adapter.show_working(place)
            except (DeliveryError, TimeoutError) as error:
                self._complain(type(adapter).__name__, error)
                if isinstance(error, DeliveryError) and not error.retryable:
                    return
            if refresh_s <= 0:
                return
            await anyio.sleep(refresh_s)

    def _complain(self, name: str, error: Exception) -> None:
        """Log a failing sign once a platform and kind: it is a nicety, not an answer."""
        kind = f"{name}: {error}"
        if kind not in self._complained and len(self._complained) < KINDS_KEPT:
            self._complained.add(kind)
            log.warning("working sign failed: %s", kind)
