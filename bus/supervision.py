"""Adapters under supervision: one that crashes is started again and never takes others down."""

import logging

import anyio

from bus.platform import Adapter, ChannelHealth, Clock, ConnectionState, Intake
from bus.retry import Backoff

log = logging.getLogger(__name__)

STABLE_AFTER_S = 60.0
"""An adapter that ran this long before it crashed is restarted as if it had never crashed, seconds."""


class AdapterSupervisor:
    """One adapter and its task.

    Args:
        backoff: The waits between crashes.
    """

    def __init__(self, adapter: Adapter, *, now: Clock, backoff: Backoff) -> None:
        self._adapter = adapter
        self._now = now
        self._backoff = backoff
        self._scope: anyio.CancelScope | None = None
        self._again = anyio.Event()
        self._trouble: ChannelHealth | None = None

    def health(self) -> ChannelHealth:
        """Return the adapter's own word, or that it crashed or ended."""
        return self._trouble or self._adapter.health()

    def restart(self) -> None:
        """Connect anew, at once."""
        self._again.set()
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, intake: Intake) -> None:
        """Keep the adapter running until cancelled."""
        crashes = 0
        while True:
            self._again = anyio.Event()
            started = anyio.current_time()
            crashed = await self._run_once(intake)
            if self._again.is_set():
                crashes = 0
            elif crashed:
                crashes = 1 if anyio.current_time() - started > STABLE_AFTER_S else crashes + 1
                with anyio.move_on_after(self._backoff.wait_s(crashes)):
                    await self._again.wait()
            else:
                await self._again.wait()

    async def _run_once(self, intake: Intake) -> bool:
        """Run the adapter until it ends; return whether it crashed."""
        name = self._adapter.name
        self._trouble = None
        try:
            with anyio.CancelScope() as self._scope:
                await self._adapter.run(intake, task_status=anyio.TASK_STATUS_IGNORED)
        except Exception as error:
            log.exception("channel %s crashed; it is started again", name)
            self._trouble = ChannelHealth(
                state=ConnectionState.RECONNECTING,
                detail=f"It crashed ({type(error).__name__}) and is started again; see the log.",
                since=self._now(),
            )
            return True
        finally:
            self._scope = None
        if not self._again.is_set() and self._adapter.health().state is not ConnectionState.FAILED:
            self._trouble = ChannelHealth(
                state=ConnectionState.FAILED,
                detail="It ended by itself; restart it.",
                since=self._now(),
            )
        return False
