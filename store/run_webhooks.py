"""Webhooks of runs that have ended: what is to be posted, stored with the end of its run."""

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
# Of several nodes, on PostgreSQL only.
_TAKE_FROM_ENDED_NODES = """
UPDATE run_webhook SET node = :node WHERE node NOT IN (SELECT number FROM node WHERE ended_at IS NULL) RETURNING *
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWebhook:
    """What is to be posted about a run: a JSON object, and where to."""

    run_id: str
    url: str
    body: str


class RunWebhookStore:
    """The run_webhook table. Rows of a node that was ended are another one's to post."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def insert_statement(self, webhook: RunWebhook) -> Statement:
        """Return what adds a row that this node posts. For other stores' transactions."""
        params: Params = {
            "run_id": webhook.run_id,
            "url": webhook.url,
            "body": webhook.body,
            "node": self._database.nodes.number,
        }
        return _INSERT, params

    async def delete(self, run_id: str) -> None:
        """Forget the webhook of a run. Raises StoreUnavailable."""
        await self._database.execute(_DELETE, {"run_id": run_id})

    async def take_left(self) -> Sequence[RunWebhook]:
        """Take over what dead processes did not post. Raises StoreUnavailable.

        SQLite: all rows, for this process has none yet. PostgreSQL: those of nodes that were ended.
        """
        if node := self._database.nodes.number:
            params: Params = {"node": node}
            rows = await self._database.transaction(
                lambda tx: tx.run(_TAKE_FROM_ENDED_NODES, params)
            )
        else:
            rows = await self._database.read(_LIST)
        return [from_row(RunWebhook, row) for row in rows]
