"""Supervises an adapter: restarts it when it crashes, and reports its health."""

import logging

import anyio

from bus.errors import unwrapped
from bus.platform import Adapter, ChannelHealth, Clock, ConnectionState, Intake
from bus.retry import Backoff
from store.work_group import WORK_GROUP

log = logging.getLogger(__name__)

STABLE_AFTER_S = 60.0
"""If an adapter crashes after running this long, the crash counts as its first, seconds."""


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
        self._restart_requested = anyio.Event()
        self._failure: ChannelHealth | None = None

    def health(self) -> ChannelHealth:
        """Return the adapter's health, which also says whether it crashed or ended."""
        return self._failure or self._adapter.health()

    def restart(self) -> None:
        """Reconnect now."""
        self._restart_requested.set()
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, intake: Intake) -> None:
        """Keep the adapter running until canceled."""
        WORK_GROUP.set(self._adapter.name)
        crashes = 0
        while True:
            self._restart_requested = anyio.Event()
            started = anyio.current_time()
            crashed = await self._run_once(intake)
            if self._restart_requested.is_set():
                crashes = 0
            elif crashed:
                crashes = 1 if anyio.current_time() - started > STABLE_AFTER_S else crashes + 1
                with anyio.move_on_after(self._backoff.wait_s(crashes)):
                    await self._restart_requested.wait()
            else:
                await self._restart_requested.wait()

    async def _run_once(self, intake: Intake) -> bool:
        """Run the adapter until it ends. Return whether it crashed."""
        name = self._adapter.name
        self._failure = None
        try:
            with anyio.CancelScope() as self._scope:
                with unwrapped():
                    await self._adapter.run(intake, task_status=anyio.TASK_STATUS_IGNORED)
        except Exception as error:
            log.exception("channel %s crashed and will be restarted", name)
            self._failure = ChannelHealth(
                state=ConnectionState.RECONNECTING,
                detail=f"It crashed ({type(error).__name__}) and is restarted; see the log.",
                since=self._now(),
            )
            return True
        finally:
            self._scope = None
        if (
            not self._restart_requested.is_set()
            and self._adapter.health().state is not ConnectionState.FAILED
        ):
            self._failure = ChannelHealth(
                state=ConnectionState.FAILED,
                detail="It ended by itself; restart it.",
                since=self._now(),
            )
        return False
