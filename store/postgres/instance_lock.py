"""The lock that keeps a second Parley away from a PostgreSQL database. Blocking calls."""

import threading
from typing import Any

import psycopg

from store.errors import StoreLocked
from store.postgres.connection import Connection, connect, unavailable

_KEY = 0x5041524C4559
"""Key of the advisory lock: "PARLEY"."""

_HOLDER = """
SELECT client_addr, backend_start AT TIME ZONE 'UTC' AS since FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND (classid::bigint << 32) | objid::bigint = %s
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class InstanceLock:
    """A session's advisory lock: the server releases it when this process ends, also after kill -9.

    It is lost with its connection. `ensure` is therefore called before every new connection of the process:
    when the server was restarted, they are all gone at once, and the first one to return takes it again.
    """

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        self._connection: Connection | None = None
        self._mutex = threading.Lock()

    def ensure(self) -> None:
        """Take the lock unless this process has it.

        Raises:
            StoreLocked: another process has it.
            StoreUnavailable: the server cannot be used.
        """
        with self._mutex:
            if not self._is_held():
                self._take()

    def release(self) -> None:
        """Release the lock."""
        with self._mutex:
            self._close()

    def _is_held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            self._close()
            return False
        return True

    def _take(self) -> None:
        connection = connect(self._parameters)
        try:
            rows = connection.execute("SELECT pg_try_advisory_lock(%s) AS is_mine", [_KEY])
            if not rows.fetchall()[0]["is_mine"]:
                raise _locked(connection)
        except psycopg.Error as error:
            connection.close()
            raise unavailable(error) from error
        except StoreLocked:
            connection.close()
            raise
        self._connection = connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _locked(connection: Connection) -> StoreLocked:
    found = connection.execute(_HOLDER, [_KEY]).fetchone()
    where = ""
    if found is not None:
        host = found["client_addr"] or "the database's machine"
        where = f" (on {host}, since {found['since']:%Y-%m-%d %H:%M} UTC)"
    return StoreLocked(
        f"Another Parley uses this PostgreSQL database{where}. Several processes on one database are not "
        "supported yet: stop the other one, or set database.url to another database."
    )
