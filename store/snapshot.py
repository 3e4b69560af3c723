"""Copies of the SQLite files of a data folder, for backups and trial upgrades. Blocking calls."""

import sqlite3
from contextlib import closing
from pathlib import Path

from store.errors import DatabaseCorrupt, StoreUnavailable
from store.migrations import read_version

BUSY_TIMEOUT_MS = 30_000


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as of one commit; other processes may write to it meanwhile.

    The copy is checked. It is a single file, without a write-ahead log.

    Args:
        source: An existing file.
        target: A new file; its mode is 0600.

    Raises:
        DatabaseCorrupt: The file is damaged.
        StoreUnavailable: It cannot be read, or the copy cannot be written.
    """
    try:
        target.touch(mode=0o600, exist_ok=False)
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as original,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            original.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS:d}")
            # Copies all pages in one read transaction: writers neither wait nor change the copy.
            original.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except (OSError, sqlite3.OperationalError) as error:
        raise StoreUnavailable(
            f"The database {source} cannot be copied into {target.parent} ({error})."
        ) from error
    except sqlite3.DatabaseError as error:
        raise DatabaseCorrupt(f"The database {source} is damaged ({error}).") from error
    check_database(target, name=source)


def check_database(file: Path, *, name: Path | None = None) -> None:
    """Read the whole file and check its structure and foreign keys.

    Args:
        file: A database that no other process uses.
        name: What to call the database in errors; by default, its file.

    Raises:
        DatabaseCorrupt: Something is wrong.
    """
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            verdict = str(opened.execute("PRAGMA quick_check(1)").fetchone()[0])
            orphan = opened.execute("PRAGMA foreign_key_check").fetchone()
    except sqlite3.Error as error:
        verdict, orphan = str(error), None
    if orphan is not None:
        verdict = f"a row of {orphan[0]} refers to a row of {orphan[2]} that does not exist"
    if verdict != "ok":
        raise DatabaseCorrupt(f"The database {name or file} is damaged ({verdict}).")


def schema_of(file: Path, *, name: Path | None = None) -> int:
    """Return the version of a database's schema; 0 if the file has no tables.

    Args:
        file: The database.
        name: What to call the database in errors; by default, its file.

    Raises:
        DatabaseCorrupt: The file is not a database.
        SchemaMismatch: An earlier Parley wrote it.
    """
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            return read_version(opened, f"The database {name or file}")
    except sqlite3.Error as error:
        raise DatabaseCorrupt(f"The database {file} is damaged ({error}).") from error
