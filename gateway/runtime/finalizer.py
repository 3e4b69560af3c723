"""RunFinalizer: writes the end of a run to disk, prunes its checkpoints, and posts its webhook."""

import logging
from collections.abc import Callable
from dataclasses import replace

import anyio

from gateway.runtime.lifecycle import RunResult
from gateway.runtime.local_run import LocalRun
from gateway.runtime.webhook_delivery import WebhookDelivery
from store.checkpoints import CheckpointSaver
from store.errors import StoreError, StoreUnavailable
from store.run_webhooks import RunWebhook
from store.runs import RunOutcome, RunStore

log = logging.getLogger(__name__)


class RunFinalizer:
    """Writes the ends of runs.

    Args:
        rows: The runs' rows.
        checkpointer: The threads' states.
        now: Returns the time, Unix seconds.
        delivery: Posts webhooks. None = webhooks are not posted.
        write_s: Time limit of a write, seconds.

    Attributes:
        undone: The runs whose starts have been reverted, or will be.
    """

    def __init__(
        self,
        rows: RunStore,
        checkpointer: CheckpointSaver,
        now: Callable[[], float],
        delivery: WebhookDelivery | None,
        *,
        write_s: float,
    ) -> None:
        self._rows = rows
        self._checkpointer = checkpointer
        self._now = now
        self._delivery = delivery
        self._write_s = write_s
        self._unsaved: list[RunOutcome] = []
        self.undone: set[str] = set()

    async def finish(self, live: LocalRun, outcome: RunResult) -> RunWebhook | None:
        """Write the end to disk, then publish it, so that subscribers who are notified find it on disk.

        The end of a canceled run is published even if it cannot be written. See `save_unsaved`.

        Args:
            live: The run.
            outcome: Its result.

        Returns:
            The webhook for `clean_up` to post. It was stored together with the end.
        """
        webhook = live.webhook(outcome, now=self._now())
        if outcome.status == "success" and outcome.thread_status == "idle":
            # A failed run may have changed messages in place after its last checkpoint.
            self._checkpointer.mark_unchanged(live.thread_id)

        end = _run_outcome(live, outcome)

        async def save() -> None:
            await self._save(replace(end, webhook=webhook))

        try:
            if webhook is not None or live.restartable or not live.temporary:
                await live.write_retry(save)
        except StoreError:
            log.exception("Could not save the end of run %s.", live.run_id)
            # Leave out the webhook, which will be posted now.
            self._unsaved.append(end)
        live.finish(outcome, now=self._now())
        return webhook

    async def undo_start(self, live: LocalRun) -> None:
        """Delete the rows of a start whose run is not executed. If the database cannot be used now, do it later."""
        end = RunOutcome(
            run_id=live.run_id,
            thread_id=live.thread_id,
            status="interrupted",
            thread_status="idle",
            delete_run=True,
            keep_thread=True,
            has_request=live.restartable,
        )
        try:
            await self._save(end)
        except StoreError as error:
            log.warning("The rows of run %s will be deleted later: %s", live.run_id, error)
            self._unsaved.append(end)

    async def save_unsaved(self) -> None:
        """Write ends that could not be written before, if the database works again."""
        while self._unsaved:
            try:
                await self._save(replace(self._unsaved[0], keep_thread=True))
            except StoreError:
                return
            del self._unsaved[0]

    async def _save(self, end: RunOutcome) -> None:
        with anyio.move_on_after(self._write_s, shield=True) as limit:
            await self._rows.finish(end, now=self._now())
        if limit.cancelled_caught:
            raise StoreUnavailable("The database did not store the end of a run in time.")
        self.undone.discard(end.run_id)

    async def roll_back(self, live: LocalRun) -> None:
        """Restore the thread's state from before the run."""
        try:
            await self._checkpointer.rollback_run(live.thread_id, live.run_id)
        except StoreError:
            log.exception("Could not roll back run %s.", live.run_id)

    async def clean_up(self, live: LocalRun, webhook: RunWebhook | None) -> None:
        """Delete checkpoints that are not kept, and post the webhook."""
        try:
            with anyio.move_on_after(self._write_s, shield=True):
                if live.temporary:
                    await self._checkpointer.adelete_thread(live.thread_id)
                else:
                    await self._checkpointer.trim_thread(live.thread_id)
        except StoreError:
            log.exception("Could not prune the checkpoints of thread %s.", live.thread_id)
        if webhook is not None and self._delivery is not None:
            await self._delivery.deliver(webhook)


def _run_outcome(live: LocalRun, outcome: RunResult) -> RunOutcome:
    return RunOutcome(
        run_id=live.run_id,
        thread_id=live.thread_id,
        status=outcome.status,
        thread_status=outcome.thread_status,
        error=outcome.failure.as_dict() if outcome.failure else None,
        interrupts=outcome.interrupts,
        title=outcome.title,
        delete_run=live.cancel_action == "rollback" and outcome.status == "interrupted",
        keep_thread=outcome.thread_unchanged,
        has_request=live.restartable,
    )
