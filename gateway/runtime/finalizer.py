"""RunFinalizer: writes the end of a run to disk, and prunes its checkpoints."""

import logging
from collections.abc import Callable

from gateway.runtime.lifecycle import RunResult
from gateway.runtime.live_run import LiveRun
from store.checkpoints import CheckpointSaver
from store.errors import StoreError
from store.runs import RunOutcome, RunStore

_log = logging.getLogger(__name__)


class RunFinalizer:
    """Writes the ends of runs."""

    def __init__(
        self, rows: RunStore, checkpointer: CheckpointSaver, now: Callable[[], float]
    ) -> None:
        self._rows = rows
        self._checkpointer = checkpointer
        self._now = now

    async def finish(self, live: LiveRun, outcome: RunResult, *, goes_on: bool) -> None:
        """Write the end to disk, then publish it: whoever is notified finds it on disk.

        Args:
            live: The run.
            outcome: Its result.
            goes_on: Whether another run waits for the thread.
        """
        end = RunOutcome(
            run_id=live.run_id,
            thread_id=live.thread_id,
            status=outcome.status,
            thread_status="busy" if goes_on else outcome.thread_status,
            error=outcome.failure.as_dict() if outcome.failure else None,
            interrupts=outcome.interrupts,
            title=outcome.title,
            delete_run=live.cancel_action == "rollback" and outcome.status == "interrupted",
            keep_thread=outcome.thread_unchanged,
        )
        try:
            if not live.temporary:
                await self._rows.finish(end, now=self._now())
        except StoreError:
            _log.exception("Could not save the end of run %s.", live.run_id)
        live.finish(outcome, now=self._now())

    async def roll_back(self, live: LiveRun) -> None:
        """Restore the thread's state from before the run."""
        try:
            await self._checkpointer.rollback_run(live.thread_id, live.run_id)
        except StoreError:
            _log.exception("Could not roll back run %s.", live.run_id)

    async def prune_checkpoints(self, live: LiveRun) -> None:
        """Delete the checkpoints that are not kept."""
        try:
            if live.temporary:
                await self._checkpointer.adelete_thread(live.thread_id)
            else:
                await self._checkpointer.trim_thread(live.thread_id)
        except StoreError:
            _log.exception("Could not prune the checkpoints of thread %s.", live.thread_id)
