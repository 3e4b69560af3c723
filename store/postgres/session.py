"""Runs units of work on one connection: begins, commits, and repeats a unit that conflicted. Blocking calls."""

import threading
import time
from collections.abc import Callable, Sequence

import psycopg
from psycopg import errors
from typing_extensions import override

from store.errors import OutcomeUnknown, StoreUnavailable, ValueRefused
from store.postgres.connection import Connection, unavailable
from store.postgres.statements import PreparedStatements
from store.transaction import Params, Row, Statement, T, Transaction

MAX_ATTEMPTS = 10
"""How many times to run a unit that conflicts with others."""

PAUSE_S = 0.005
"""Pause after the first lost attempt, seconds, so that the other unit can finish. Later pauses are longer."""

OUTCOME_S = 5.0
"""How long to keep asking for the outcome of an unanswered COMMIT, seconds."""

OUTCOME_POLL_S = 0.05

_STATUS = "SELECT pg_xact_status(CAST(:number AS xid8)) AS status"
_INCARNATION = "SELECT coalesce(stats_reset::text, '') AS incarnation FROM pg_stat_wal"
"""Changes after a crash of the server and on another server. Otherwise, PostgreSQL does not reset these statistics."""

_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)


class _PostgresTransaction(Transaction):
    """A transaction. It begins with its first statement. `is_read`: every statement runs on its own."""

    def __init__(self, statements: PreparedStatements, *, is_read: bool) -> None:
        self._statements = statements
        self._has_begun = is_read
        self._is_read = is_read
        self.number = ""
        self.is_committing = False

    @override
    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        if self._has_begun:
            return self._statements.run(sql, params or {})
        return self.run_all([(sql, params or {})])[0]

    @override
    def run_all(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        if not statements:
            return []
        if self._has_begun:
            return self._statements.run_all(statements)
        self._has_begun = True
        self.number, rows = self._statements.begin(statements)
        return rows

    @override
    def lock(self, name: str) -> None:
        self.run("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))", {"name": name})

    def commit(self) -> None:
        """Commit the transaction."""
        if self._has_begun and not self._is_read:
            self.is_committing = True
            self._statements.command(b"COMMIT")


class PostgresSession:
    """A connection that is opened when needed. For one worker thread.

    Args:
        connector: Returns a new connection; raises StoreUnavailable.
    """

    def __init__(self, connector: Callable[[], Connection]) -> None:
        self._connector = connector
        self._connection: Connection | None = None
        self._statements: PreparedStatements | None = None
        self._incarnation = ""
        self._pause = threading.Event()

    def run(self, work: Callable[[Transaction], T], *, is_read: bool = False) -> T:
        """Run a unit and commit it; repeat it if it conflicted with another one or its connection was closed.

        Raises:
            OutcomeUnknown: the connection broke during the commit, and the outcome is unknown: the server crashed or is
                away for longer than `OUTCOME_S`.
            StoreUnavailable: no connection could be opened.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            connection, statements = self._opened()
            incarnation = self._incarnation
            transaction = _PostgresTransaction(statements, is_read=is_read)
            values: list[T] = []
            try:
                values.append(work(transaction))
                transaction.commit()
            except psycopg.Error as error:
                failure = error
            else:
                return values[0]
            finally:
                self._end(connection)
            is_broken = self._connection is None
            is_unanswered = is_broken and transaction.is_committing
            if is_unanswered and self._was_committed(transaction.number, incarnation, failure):
                return values[0]
            if not _may_repeat(failure, is_first=attempt == 1, is_broken=is_broken):
                raise _translated(failure) from failure
            if isinstance(failure, _CONFLICTS):
                self._pause.wait(attempt * PAUSE_S)
        raise StoreUnavailable(
            "The database could not be written: every attempt conflicted with other transactions."
        )

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _was_committed(self, number: str, incarnation: str, failure: psycopg.Error) -> bool:
        """Return whether a transaction with an unanswered COMMIT was committed. Raises OutcomeUnknown."""
        deadline = time.monotonic() + OUTCOME_S
        while time.monotonic() < deadline:
            outcome = self._outcome(number)
            if outcome == "aborted":
                return False
            if outcome == "committed":
                if incarnation and incarnation == self._incarnation:
                    return True
                break  # After a crash, the server reuses the numbers of lost transactions.
            self._pause.wait(OUTCOME_POLL_S)
        raise OutcomeUnknown(str(unavailable(failure))) from failure

    def _outcome(self, number: str) -> str:
        """Return `committed`, `aborted`, or "" while it is unknown."""
        connection: Connection | None = None
        try:
            connection, statements = self._opened()
            status = statements.run(_STATUS, {"number": number})[0]["status"]
        except errors.InvalidParameterValue:
            return "aborted"  # After a crash, the number was not assigned yet.
        except (psycopg.Error, StoreUnavailable):
            status = ""
        finally:
            if connection is not None:
                self._end(connection)
        return "" if status is None or status == "in progress" else str(status)

    def _opened(self) -> tuple[Connection, PreparedStatements]:
        if self._connection is None or self._statements is None:
            self._connection = self._connector()
            self._statements = PreparedStatements(self._connection)
            try:
                self._incarnation = str(self._statements.run(_INCARNATION, {})[0]["incarnation"])
            except psycopg.Error as error:
                self._connection.close()
                self._connection = None
                raise unavailable(error) from error
        return self._connection, self._statements

    def _end(self, connection: Connection) -> None:
        """Roll back an open transaction; drop a broken connection."""
        try:
            if connection.info.transaction_status:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        if connection.closed:
            self._connection = None


def _may_repeat(error: psycopg.Error, *, is_first: bool, is_broken: bool) -> bool:
    """Return whether a failed unit should run again. `is_broken`: its connection broke before the commit."""
    if isinstance(error, _CONFLICTS):
        return True
    # Another unit may have inserted the row after this one looked for it.
    return is_first and (is_broken or isinstance(error, psycopg.IntegrityError))


def _translated(error: psycopg.Error) -> Exception:
    if isinstance(error, psycopg.IntegrityError):
        return error
    if isinstance(error, psycopg.DataError | errors.ProgramLimitExceeded):
        return ValueRefused()
    return unavailable(error)
