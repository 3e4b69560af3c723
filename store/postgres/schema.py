"""The schema on PostgreSQL: applies the steps of store/migrations. Blocking calls."""

import time
from typing import Any

import psycopg
from psycopg import errors

from store.errors import StoreUnavailable
from store.migrations import SELECT_VERSION, TABLE, missing_steps, refuse_earlier, steps
from store.postgres.connection import Connection, connect, unavailable

_LOCK_KEY = 0x5041524C4559_01
_HAS_TABLE = "SELECT to_regclass(%s) IS NOT NULL AS found"
_EARLIER_TABLE = "schema_version"
"""Name of the table of applied steps before version 0.2.0."""

_EAVESDROPPERS = """
SELECT rolname FROM pg_roles
WHERE rolcanlogin AND has_database_privilege(oid, current_database(), 'CONNECT')
AND NOT has_table_privilege(oid, 'parley_schema', 'SELECT') ORDER BY rolname
"""

UNFINISHED_COPY = "unfinished_copy"
"""A table that exists while `parley migrate` copies rows into the database (transfer.py)."""


def migrate(parameters: dict[str, Any], *, allow_unfinished: bool = False) -> int:
    """Apply the missing steps to a database; return its version. Other processes that call this wait.

    Args:
        parameters: The connection parameters.
        allow_unfinished: Accept a database whose rows are incomplete.

    Raises:
        SchemaMismatch: A newer or an earlier Parley wrote it; nothing was changed.
        StoreUnavailable: the role lacks the privileges, or the server failed; nothing was changed.
    """
    connection = connect(parameters)
    try:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET lock_timeout = 0")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
            if not allow_unfinished and _has_table(connection, UNFINISHED_COPY):
                raise StoreUnavailable(
                    "`parley migrate` was interrupted while it copied rows into this database: run it again."
                )
            return _apply_missing(connection)
    except errors.InsufficientPrivilege as error:
        raise StoreUnavailable(_missing_rights(connection, error)) from error
    except psycopg.Error as error:
        raise unavailable(error) from error
    finally:
        connection.close()


def _apply_missing(connection: Connection) -> int:
    for version, sql in missing_steps("postgres", _version(connection)).items():
        connection.execute(sql)
        connection.execute("INSERT INTO parley_schema VALUES (%s, %s)", [version, time.time()])
    return len(steps("postgres"))


def check_version(parameters: dict[str, Any]) -> None:
    """Return if this code knows the schema of a database that another process uses.

    Raises:
        SchemaMismatch: A newer or an earlier Parley wrote it.
        StoreUnavailable: the server failed.
    """
    connection = connect(parameters)
    try:
        missing_steps("postgres", _version(connection))
    except psycopg.Error as error:
        raise unavailable(error) from error
    finally:
        connection.close()


def list_roles_without_rights(parameters: dict[str, Any]) -> list[str]:
    """Return the roles that can connect to a database but have no rights on Parley's tables.

    PostgreSQL lets every connected role read and send signals. Raises StoreUnavailable.
    """
    connection = connect(parameters)
    try:
        if not _has_table(connection, TABLE):
            return []
        return [row["rolname"] for row in connection.execute(_EAVESDROPPERS)]
    except psycopg.Error as error:
        raise unavailable(error) from error
    finally:
        connection.close()


def _version(connection: Connection) -> int:
    """Return the last step that was applied; 0 if the database has no Parley tables. Raises SchemaMismatch."""
    if _has_table(connection, TABLE):
        return int(connection.execute(SELECT_VERSION).fetchall()[0]["version"])
    if _has_table(connection, _EARLIER_TABLE):
        raise refuse_earlier(f"The database {connection.info.dbname}", "an empty database")
    return 0


def _has_table(connection: Connection, name: str) -> bool:
    return bool(connection.execute(_HAS_TABLE, [name]).fetchall()[0]["found"])


def _may_read(connection: Connection, name: str) -> bool:
    found = connection.execute("SELECT has_table_privilege(%s, 'SELECT') AS granted", [name])
    return bool(found.fetchall()[0]["granted"])


def _missing_rights(connection: Connection, error: psycopg.Error) -> str:
    role, database = connection.info.user, connection.info.dbname
    if _has_table(connection, TABLE) and not _may_read(connection, TABLE):
        return (
            f"The PostgreSQL role {role} may not use Parley's tables in the database {database} "
            f"({error.diag.message_primary}). Run as their owner: "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
    return (
        f"The PostgreSQL role {role} may not create Parley's tables in the database {database} "
        f"({error.diag.message_primary}). Run `parley migrate --schema DATABASE` as the role that owns them. "
        f"Or let {role} own them: GRANT CREATE, USAGE ON SCHEMA public TO {role}"
    )
