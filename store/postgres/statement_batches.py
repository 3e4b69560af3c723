"""Group commit on PostgreSQL: single statements of many callers run in one transaction, with two trips."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import psycopg

from store.errors import ValueRefused
from store.postgres.connection import Connection, unavailable
from store.postgres.session import PostgresSession
from store.transaction import Row, Statement, Transaction
from store.unit_of_work import UnitOfWork, take_batch

MAX_BATCH = 64
"""Maximum number of statements per transaction.

Each takes the server up to 0.5 ms, and the first statement waits for the last.
"""

LOCK_MS = 50
"""How long a statement of a batch may wait for a lock, milliseconds. After that, each statement runs on its own.

This also limits the wait of two nodes that lock the same rows in different orders: PostgreSQL checks for deadlocks only
after a second.
"""


class StatementUnit(UnitOfWork):
    """A unit with one statement."""

    __slots__ = ("statement",)

    def __init__(self, statement: Statement, future: asyncio.Future[Sequence[Row]]) -> None:
        super().__init__(self._run, future)
        self.statement = statement

    def _run(self, tx: Transaction) -> Sequence[Row]:
        return tx.run(*self.statement)


class _BatchRefused(Exception):
    """One of the statements failed; nothing was committed."""


class StatementBatches:
    """A connection with a worker thread that runs queued statements together.

    Args:
        connector: Returns a new connection; raises StoreUnavailable.
        report: Gets units with their results; called on the thread.
        run_alone: Gets each unit of a failed batch, none of which was committed.
    """

    def __init__(
        self,
        connector: Callable[[], Connection],
        report: Callable[[Sequence[UnitOfWork]], None],
        run_alone: Callable[[UnitOfWork], None],
    ) -> None:
        self._connector = connector
        self._report = report
        self._run_alone = run_alone
        self._queue: SimpleQueue[StatementUnit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="database-statements", daemon=True)
        self._thread.start()

    def put(self, unit: StatementUnit) -> None:
        """Queue a statement. If its batch fails, it runs on its own."""
        self._queue.put(unit)

    def close(self, timeout_s: float) -> None:
        """Run the queued statements, then close the connection. Blocks."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        session = PostgresSession(self._connect)
        running = True
        while running:
            batch = take_batch(self._queue, MAX_BATCH)
            running = batch[-1] is not None
            units = [unit for unit in batch if unit is not None]
            if units:
                self._run(session, units)
        session.close()

    def _run(self, session: PostgresSession, units: Sequence[StatementUnit]) -> None:
        statements = [unit.statement for unit in units]
        try:
            rows = session.run(lambda tx: _run_together(tx, statements))
        except _BatchRefused:
            for unit in units:
                self._run_alone(unit)
            return
        except Exception as error:  # noqa: BLE001 - it goes to those who sent the statements
            for unit in units:
                unit.error = error
        else:
            for unit, value in zip(units, rows, strict=True):
                unit.value = value
        self._report(units)

    def _connect(self) -> Connection:
        connection = self._connector()
        try:
            connection.execute(f"SET lock_timeout = {LOCK_MS}".encode())
        except psycopg.Error as error:
            connection.close()
            raise unavailable(error) from error
        return connection


def _run_together(tx: Transaction, statements: Sequence[Statement]) -> list[Sequence[Row]]:
    """Run statements. Raises psycopg.Error if the connection broke, else _BatchRefused."""
    try:
        return tx.run_all(statements)
    except ValueRefused as error:
        raise _BatchRefused from error
    except psycopg.Error as error:
        # 08: the connection is lost. 57P: the server ends it.
        if error.sqlstate is None or error.sqlstate.startswith(("08", "57P")):
            raise
        raise _BatchRefused from error
