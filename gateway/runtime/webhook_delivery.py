"""WebhookDelivery: posts the stored webhooks of ended runs, including those that dead processes did not post."""

import logging
from collections.abc import Sequence

import anyio
from anyio.abc import TaskGroup

from gateway.runtime.abandoned_runs import on_each_change
from gateway.runtime.webhooks import RunWebhooks
from store.errors import StoreUnavailable
from store.nodes import Node, Nodes
from store.run_webhooks import RunWebhook, RunWebhookStore

MAX_ABANDONED = 8
"""Maximum number of dead processes' webhooks that are posted at a time."""

log = logging.getLogger(__name__)


class WebhookDelivery:
    """Posts stored webhooks, each at least once. Webhooks that were accepted, or refused too often, are deleted.

    Args:
        rows: The stored webhooks.
        sender: Posts them.
        nodes: The processes that share the database.
    """

    def __init__(self, rows: RunWebhookStore, sender: RunWebhooks, nodes: Nodes) -> None:
        self._rows = rows
        self._sender = sender
        self._nodes = nodes
        self._seen: Sequence[Node] = ()
        self._abandoned = anyio.CapacityLimiter(MAX_ABANDONED)

    async def deliver(self, webhook: RunWebhook) -> None:
        """Post a stored webhook. Raises only on cancellation. Then the webhook stays stored, for another process."""
        try:
            was_accepted = await self._sender.send(webhook.url, webhook.body)
        except OSError as error:  # The key or the certificates cannot be read. The webhook stays.
            log.error("Run %s: its webhook waits for the next start: %s", webhook.run_id, error)  # noqa: TRY400 - the disk says enough
            return
        if not was_accepted:
            log.warning("Run %s: its webhook was given up.", webhook.run_id)
        try:
            await self._rows.delete(webhook.run_id)
        except StoreUnavailable as error:
            log.warning("Run %s: its webhook may be repeated: %s", webhook.run_id, error)

    async def take_abandoned(self) -> Sequence[RunWebhook]:
        """Return webhooks that dead processes did not post.

        Call it before this process stores any. Raises StoreUnavailable.
        """
        self._seen = self._nodes.living
        return await self._rows.take_abandoned()

    async def watch(self, abandoned: Sequence[RunWebhook]) -> None:
        """Post `abandoned`, and the webhooks of other nodes as soon as these have ended."""
        async with anyio.create_task_group() as tasks:
            self._start(tasks, abandoned)

            async def take() -> None:
                self._start(tasks, await self.take_abandoned())

            await on_each_change(self._nodes, self._seen, take)

    def _start(self, tasks: TaskGroup, abandoned: Sequence[RunWebhook]) -> None:
        for webhook in abandoned:
            tasks.start_soon(self._deliver_abandoned, webhook)

    async def _deliver_abandoned(self, webhook: RunWebhook) -> None:
        async with self._abandoned:
            await self.deliver(webhook)
