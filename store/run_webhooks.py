"""Webhook calls of ended runs, stored in the transaction that ends the run."""

from collections.abc import Sequence
from dataclasses import dataclass

from store.database import Database
from store.rows import from_row
from store.transaction import Params, Statement

_INSERT = """
INSERT INTO run_webhook (run_id, url, body, node) VALUES (:run_id, :url, :body, :node)
ON CONFLICT (run_id) DO NOTHING
"""
_DELETE = "DELETE FROM run_webhook WHERE run_id = :run_id"
_LIST = "SELECT * FROM run_webhook"
# For several nodes, so on PostgreSQL only.
_TAKE_FROM_ENDED_NODES = """
UPDATE run_webhook SET node = :node WHERE node NOT IN (SELECT number FROM node WHERE ended_at IS NULL) RETURNING *
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWebhook:
    """A webhook call about a run: its JSON object and its URL."""

    run_id: str
    url: str
    body: str


class RunWebhookStore:
    """The run_webhook table. Another node posts the rows of a node that was ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert_statement(self, webhook: RunWebhook) -> Statement:
        """Return the statement that adds a row for this node to post. For other stores' transactions."""
        params: Params = {
            "run_id": webhook.run_id,
            "url": webhook.url,
            "body": webhook.body,
            "node": self._database.nodes.number,
        }
        return _INSERT, params

    async def delete(self, run_id: str) -> None:
        """Delete the webhook call of a run. Raises StoreUnavailable."""
        await self._database.execute(_DELETE, {"run_id": run_id})

    async def take_abandoned(self) -> Sequence[RunWebhook]:
        """Take over the calls that dead processes did not make. Raises StoreUnavailable.

        SQLite: all rows, because this process has none yet. PostgreSQL: the rows of nodes that were ended.
        """
        if node := self._database.nodes.number:
            params: Params = {"node": node}
            rows = await self._database.transaction(
                lambda tx: tx.run(_TAKE_FROM_ENDED_NODES, params)
            )
        else:
            rows = await self._database.read(_LIST)
        return [from_row(RunWebhook, row) for row in rows]
