"""The schema, as numbered files `NNNN_name.sql`: each is applied once, in order, in one transaction.

Files for SQLite are in this folder, those for PostgreSQL in `postgres`. From 13 on a number is in both.
A file holds plain statements and no transaction control. A database that knows a higher number than the
highest file was written by a newer Parley and is refused.
"""

import re
import sqlite3
import time
from importlib.resources import files

from store.errors import SchemaTooNew

POSTGRES = "postgres"
"""Folder of the files for PostgreSQL."""

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT
"""


def migrate(connection: sqlite3.Connection) -> int:
    """Bring a database up to date; return its version.

    Raises:
        SchemaTooNew: it is ahead of this code; nothing was changed.
        sqlite3.Error: a file failed; its transaction was rolled back.
    """
    known = scripts()
    connection.execute(_TABLE)
    applied = {row[0] for row in connection.execute("SELECT version FROM schema_version")}
    refuse_newer(max(applied, default=0), max(known))
    for version, sql in known.items():
        if version not in applied:
            _apply(connection, version, sql)
    return max(known)


def refuse_newer(newest: int, known: int) -> None:
    """Raise SchemaTooNew if the schema of a database is newer than the newest that this code knows."""
    if newest > known:
        raise SchemaTooNew(
            f"The database has schema {newest}, this Parley knows schema {known}: it was written by a "
            "newer version. Install that version again, or restore a backup made with this one."
        )


def scripts(folder: str = "") -> dict[int, str]:
    """Return the migrations by number, in order. `folder`: `POSTGRES`, or "" for SQLite's."""
    found = {
        int(match[1]): entry.read_text(encoding="utf-8")
        for entry in files(__package__).joinpath(folder).iterdir()
        if (match := _NAME.fullmatch(entry.name))
    }
    return dict(sorted(found.items()))


def _apply(connection: sqlite3.Connection, version: int, sql: str) -> None:
    noted = f"INSERT INTO schema_version VALUES ({version:d}, {int(time.time()):d})"  # noqa: S608 - two integers
    try:
        # One script, because `executescript` commits whatever transaction is open before it starts.
        connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\n;{noted};\nCOMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
