"""Runs units of work on one connection: begin, commit, and again when others were first. Blocking calls."""

import threading
from collections.abc import Callable, Sequence

import psycopg
from psycopg import errors
from typing_extensions import override

from store.errors import StoreError, StoreUnavailable
from store.postgres.connection import Connection, unavailable
from store.postgres.prepared import PreparedStatements
from store.transaction import Params, Row, T, Transaction

MAX_ATTEMPTS = 10
"""How often a unit runs that loses against others."""

PAUSE_S = 0.005
"""Pause after the first lost attempt, seconds, so that the unit that won gets on; later ones are longer."""

_CONFLICTS = (errors.SerializationFailure, errors.DeadlockDetected)


class _PostgresTransaction(Transaction):
    """A transaction; it begins with its first statement. `is_read`: every statement stands alone."""

    def __init__(self, statements: PreparedStatements, *, is_read: bool) -> None:
        self._statements = statements
        self._has_begun = is_read
        self._is_read = is_read
        self.is_committing = False

    @override
    def run(self, sql: str, params: Params | None = None) -> Sequence[Row]:
        if not self._has_begun:
            self._has_begun = True
            self._statements.command(b"BEGIN")
        return self._statements.run(sql, params or {})

    @override
    def lock(self, name: str) -> None:
        self.run("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))", {"name": name})

    def commit(self) -> None:
        """Commit what was run."""
        if self._has_begun and not self._is_read:
            self.is_committing = True
            self._statements.command(b"COMMIT")


class PostgresSession:
    """A connection that is opened when it is needed. For one thread.

    Args:
        connector: Returns a new connection; raises StoreUnavailable.
    """

    def __init__(self, connector: Callable[[], Connection]) -> None:
        self._connector = connector
        self._connection: Connection | None = None
        self._statements: PreparedStatements | None = None
        self._pause = threading.Event()

    def run(self, work: Callable[[Transaction], T], *, is_read: bool = False) -> T:
        """Run a unit and commit it; again, if it lost against another one or its connection was closed.

        Raises:
            StoreUnavailable: there is no connection, or it broke while the unit was committed.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            connection, statements = self._opened()
            transaction = _PostgresTransaction(statements, is_read=is_read)
            try:
                value = work(transaction)
                transaction.commit()
            except psycopg.Error as error:
                failure = error
            else:
                return value
            finally:
                self._end(connection)
            is_broken = self._connection is None and not transaction.is_committing
            if not _may_repeat(failure, is_first=attempt == 1, is_broken=is_broken):
                raise _translated(failure) from failure
            if isinstance(failure, _CONFLICTS):
                self._pause.wait(attempt * PAUSE_S)
        raise StoreUnavailable("The database could not be written: other units were always first.")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> tuple[Connection, PreparedStatements]:
        if self._connection is None or self._statements is None:
            self._connection = self._connector()
            self._statements = PreparedStatements(self._connection)
        return self._connection, self._statements

    def _end(self, connection: Connection) -> None:
        """Roll back what was not committed; forget a connection that broke."""
        try:
            if connection.info.transaction_status:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        if connection.closed:
            self._connection = None


def _may_repeat(error: psycopg.Error, *, is_first: bool, is_broken: bool) -> bool:
    """Return whether a unit that failed is to run again. `is_broken`: its connection, before the commit."""
    if isinstance(error, _CONFLICTS):
        return True
    # Another unit may have inserted the row after this one had looked for it.
    return is_first and (is_broken or isinstance(error, psycopg.IntegrityError))


def _translated(error: psycopg.Error) -> Exception:
    if isinstance(error, psycopg.IntegrityError):
        return error
    if isinstance(error, psycopg.DataError):
        return StoreError(f"The database refused a value ({error}).")
    return unavailable(error)
