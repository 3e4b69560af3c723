"""The schema of each database, in numbered steps: the files `NNNN_DATABASE.sql` of this folder.

Step 1 creates the tables of an empty database; each later step changes the tables that the earlier steps left. A step
is applied once, in a transaction, and recorded in the table `parley_schema`, which step 1 creates. A file contains
plain statements and no transaction control.
"""

import re
import sqlite3
import time
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

from store.errors import SchemaMismatch

SchemaName = Literal["sqlite", "checkpoints", "postgres"]
"""Which database: the SQLite file, the second SQLite file with the states of threads, or PostgreSQL."""

FOLDER: Traversable = files(__package__)
TABLE = "parley_schema"
SELECT_VERSION = "SELECT max(version) AS version FROM parley_schema"

_NAME = re.compile(r"(\d{4})_([a-z]+)\.sql")


def steps(schema: SchemaName) -> list[str]:
    """Return the SQL of all steps in order: step 1 is the first."""
    found = {
        match[1]: entry.read_text(encoding="utf-8")
        for entry in FOLDER.iterdir()
        if (match := _NAME.fullmatch(entry.name)) and match[2] == schema
    }
    return [found[number] for number in sorted(found)]


def missing_steps(schema: SchemaName, version: int) -> dict[int, str]:
    """Return the SQL of the steps that a database of this version lacks, by number and in order.

    Raises:
        SchemaMismatch: A newer Parley wrote the database.
    """
    known = steps(schema)
    if version > len(known):
        raise SchemaMismatch(
            f"The database has schema {version}, but this Parley knows only schema {len(known)}: it was written by a "
            "newer version. Install that version again, or restore a backup made with this one."
        )
    return dict(enumerate(known[version:], start=version + 1))


def refuse_earlier(name: str, empty: str) -> SchemaMismatch:
    """Return the error for a database whose tables an earlier version of Parley created.

    Args:
        name: What to call the database in the message.
        empty: What to start with instead: "an empty data folder (PARLEY_HOME)".
    """
    return SchemaMismatch(
        f"{name} was written by an earlier version of Parley, whose data this version cannot use. "
        f"Start with {empty}, or keep using the earlier version."
    )


def migrate(connection: sqlite3.Connection, schema: SchemaName, name: str) -> int:
    """Apply the missing steps to a SQLite file; return its version.

    Args:
        connection: To the file, in autocommit mode.
        schema: Which of the two database files it is.
        name: What to call the file in messages.

    Raises:
        SchemaMismatch: Another version of Parley wrote the file; nothing was changed.
        sqlite3.Error: A step failed; its transaction was rolled back.
    """
    for version, sql in missing_steps(schema, read_version(connection, name)).items():
        _apply(connection, version, sql)
    return len(steps(schema))


def read_version(connection: sqlite3.Connection, name: str) -> int:
    """Return the last step that was applied to a SQLite file; 0 if the file has no tables.

    Raises:
        SchemaMismatch: An earlier Parley wrote the file.
    """
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    if (TABLE,) in found:
        return int(connection.execute(SELECT_VERSION).fetchone()[0])
    if found:
        raise refuse_earlier(name, "an empty data folder (PARLEY_HOME)")
    return 0


def _apply(connection: sqlite3.Connection, version: int, sql: str) -> None:
    noted = f"INSERT INTO parley_schema VALUES ({version:d}, {time.time():f})"  # noqa: S608 - two numbers
    try:
        # One script: `executescript` commits a transaction that is open when it starts.
        connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\n;{noted};\nCOMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
