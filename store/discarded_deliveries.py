"""Discarded deliveries: outbox rows that an administrator discarded, kept so that this can be undone."""

from collections.abc import Sequence

from store.database import Database, Transaction
from store.outbox import OutboxRow, read_rows
from store.rows import from_row

_DISCARD = "DELETE FROM outbox WHERE id = :id AND state <> 'sending' RETURNING *"
_KEEP = """
INSERT INTO discarded_delivery (
    id, key, conversation_id, body, state, attempts, uncertain_attempts, not_before, first_sent_at, last_sent_at,
    platform_id, error, failed_attempts, created_at, updated_at, batch, discarded_at)
VALUES (
    :id, :key, :conversation_id, :body, :state, :attempts, :uncertain_attempts, :not_before, :first_sent_at,
    :last_sent_at, :platform_id, :error, :failed_attempts, :created_at, :updated_at, :batch, :now)
"""
_LIST_BATCH = "SELECT id FROM discarded_delivery WHERE batch = :batch ORDER BY id LIMIT :limit"
_TAKE = "DELETE FROM discarded_delivery WHERE id = :id RETURNING *"
# A row with the same key may have been stored meanwhile.
_RESTORE = """
INSERT INTO outbox (
    id, key, conversation_id, body, state, attempts, uncertain_attempts, not_before, first_sent_at, last_sent_at,
    platform_id, error, failed_attempts, created_at, updated_at)
VALUES (
    :id, :key, :conversation_id, :body, :state, :attempts, :uncertain_attempts, :not_before, :first_sent_at,
    :last_sent_at, :platform_id, :error, :failed_attempts, :created_at, :updated_at)
ON CONFLICT (key) DO NOTHING
"""


class DiscardedDeliveries:
    """The table discarded_delivery. `OutboxStore` lists its rows with those of the outbox."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def discard(self, row_ids: Sequence[int], *, batch: str, now: float) -> list[OutboxRow]:
        """Move rows from the outbox to this table unchanged, except those being sent. Return the moved rows.

        `batch`: the name by which `find_batch` finds them.
        """

        def work(tx: Transaction) -> list[OutboxRow]:
            keys = {row.id: row.conversation for row in read_rows(tx, row_ids)}
            found = tx.run_all([(_DISCARD, {"id": row_id}) for row_id in keys])
            taken = [row for rows in found for row in rows]
            tx.run_all([(_KEEP, {**row, "batch": batch, "now": now}) for row in taken])
            return [
                from_row(OutboxRow, row, conversation=keys[row["id"]], discarded_at=now)
                for row in taken
            ]

        return await self._database.transaction(work)

    async def find_batch(self, batch: str, *, limit: int) -> list[int]:
        """Return the IDs of rows that one request discarded and that have not been restored."""
        rows = await self._database.read(_LIST_BATCH, {"batch": batch, "limit": limit})
        return [int(row["id"]) for row in rows]

    async def restore(self, row_ids: Sequence[int]) -> list[OutboxRow]:
        """Put discarded rows back as they were, unless the outbox has a row with the same key. Return them."""

        def work(tx: Transaction) -> list[OutboxRow]:
            found = tx.run_all([(_TAKE, {"id": row_id}) for row_id in row_ids])
            taken = [row for rows in found for row in rows]
            tx.run_all([(_RESTORE, dict(row)) for row in taken])
            return read_rows(tx, [row["id"] for row in taken])

        return await self._database.transaction(work)
