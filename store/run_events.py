"""The run_event table: events of runs, for the nodes that do not execute the runs. PostgreSQL only.

The table is unlogged: its rows are not written to the write-ahead log, and are lost if the server crashes. Readers
notice the missing numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from store.database import Database
from store.rows import from_row
from store.transaction import Params, Statement, Transaction

ROWS_PER_READ = 16
"""Maximum number of rows that one read returns. Each has up to some 100 KB of events."""

# Only the database's clock counts.
_INSERT = """
INSERT INTO run_event (run_id, first_id, last_id, body, result, created_at)
VALUES (:run_id, :first_id, :last_id, :body, :result, extract(epoch FROM clock_timestamp()))
ON CONFLICT DO NOTHING
"""
_READ = f"""
SELECT run_id, first_id, last_id, body, result FROM run_event
WHERE run_id = :run_id AND first_id > CAST(:after AS BIGINT) AND first_id <= CAST(:until AS BIGINT)
ORDER BY first_id LIMIT {ROWS_PER_READ}
"""  # noqa: S608 - a literal only
_DELETE_OLD = """
DELETE FROM run_event WHERE run_id IN (
    SELECT run_id FROM run_event GROUP BY run_id
    HAVING max(created_at) < extract(epoch FROM clock_timestamp()) - CAST(:keep_s AS DOUBLE PRECISION)
)
AND NOT EXISTS (SELECT 1 FROM run WHERE run.run_id = run_event.run_id AND run.status IN ('pending', 'running'))
AND NOT EXISTS (SELECT 1 FROM run_request WHERE run_request.run_id = run_event.run_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Consecutive events of a run.

    Attributes:
        first_id: The number of the first event.
        last_id: The number of the last event.
        body: The events.
        result: The run's result, with its last events, if the events do not contain it.
    """

    run_id: str
    first_id: int
    last_id: int
    body: bytes
    result: bytes | None = None


class RunEventStore:
    """The run_event table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, rows: Sequence[EventRow]) -> None:
        """Add rows, all or none. Existing rows stay as they are. Raises StoreUnavailable."""
        statements: list[Statement] = [
            (
                _INSERT,
                {
                    "run_id": row.run_id,
                    "first_id": row.first_id,
                    "last_id": row.last_id,
                    "body": row.body,
                    "result": row.result,
                },
            )
            for row in rows
        ]

        def work(tx: Transaction) -> None:
            tx.run_all(statements)

        await self._database.transaction(work)

    async def read(self, run_id: str, *, after: int, until: int) -> list[EventRow]:
        """Return the next rows of a run, oldest first, up to `ROWS_PER_READ`. Raises StoreUnavailable.

        Args:
            run_id: The run.
            after: The number of the last event that the caller has.
            until: The largest number that a row's first event may have.
        """
        params: Params = {"run_id": run_id, "after": after, "until": until}
        return [from_row(EventRow, row) for row in await self._database.read(_READ, params)]

    async def delete_old(self, *, keep_s: float) -> None:
        """Delete the events of ended runs that had no new events for `keep_s` seconds. Raises StoreUnavailable."""
        await self._database.execute(_DELETE_OLD, {"keep_s": keep_s})
