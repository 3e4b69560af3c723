"""Checks and opens the SQLite file. Blocking calls; nothing here is async."""

import shutil
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

from store.data_folder import unusable_folder
from store.errors import DatabaseCorrupt, StoreUnavailable
from store.migrations import SchemaName, migrate, missing_steps, read_version

WAL_PAGES = 1000
"""Pages (4 KB each) in the write-ahead log before a checkpoint copies them into the file. This is SQLite's default."""

OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with STRICT tables (2021)."""

_DAMAGED = ("file is not a database", "malformed", "file is encrypted")


def connect(file: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """Check, open and migrate the database; return the connection for the writer.

    Raises:
        DatabaseCorrupt: the file is damaged; it was copied and not changed.
        SchemaMismatch: a newer or an earlier Parley wrote it.
        StoreUnavailable: it cannot be opened.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        required = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnavailable(
            f"Python's SQLite is {sqlite3.sqlite_version}; Parley needs {required} or newer."
        )
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError as error:
        raise unusable_folder(file.parent, error) from error
    _check(file)
    with ExitStack() as stack:
        connection = sqlite3.connect(
            file, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        stack.callback(connection.close)
        try:
            for pragma in _pragmas(busy_timeout_ms):
                connection.execute(pragma)
            migrate(connection, "sqlite", f"The database {file}")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The database {file} cannot be opened: {error}.") from error
        stack.pop_all()
    return connection


def reader_pragmas(busy_timeout_ms: int) -> tuple[str, ...]:
    """Return the pragmas of a read-only connection."""
    return (f"PRAGMA busy_timeout = {busy_timeout_ms:d}", "PRAGMA query_only = ON")


def _pragmas(busy_timeout_ms: int) -> tuple[str, ...]:
    return (
        f"PRAGMA busy_timeout = {busy_timeout_ms:d}",
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA foreign_keys = ON",
        f"PRAGMA wal_autocheckpoint = {WAL_PAGES:d}",
    )


def inspect(file: Path, schema: SchemaName = "sqlite") -> None:
    """Return if this Parley can open an existing SQLite file. Changes nothing; reads the whole file.

    Raises:
        DatabaseCorrupt: the file is damaged.
        SchemaMismatch: a newer or an earlier Parley wrote it.
        StoreUnavailable: it cannot be read.
    """
    if damage := _find_damage(file):
        raise DatabaseCorrupt(
            f"The database {file} is damaged ({damage}). Replace it with a backup, or move it away to start "
            "with an empty database."
        )
    with closing(_connect_read_only(file)) as connection:
        missing_steps(schema, read_version(connection, f"The database {file}"))


def _check(file: Path) -> None:
    if damage := _find_damage(file):
        raise DatabaseCorrupt(
            f"The database {file} is damaged ({damage}). It was not changed; {_keep(file)}. "
            "Replace it with a backup and start again, or move it away to start with an empty database."
        )


def _find_damage(file: Path) -> str:
    """Read the whole file without writing to it (about 60 ms per 100 MB); "" = intact. Raises StoreUnavailable."""
    try:
        with closing(_connect_read_only(file)) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        verdict = str(error)
        if not any(sign in verdict for sign in _DAMAGED):
            raise StoreUnavailable(f"The database {file} cannot be read: {verdict}.") from error
    return "" if verdict == "ok" else verdict


def _connect_read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _keep(file: Path) -> str:
    """Copy a damaged file (and its write-ahead log) once; return a phrase that names the copy."""
    stat = file.stat()
    for earlier in sorted(file.parent.glob(f"{file.name}.corrupt-*")):
        kept = earlier.stat()
        if (kept.st_size, kept.st_mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return f"an earlier copy is {earlier}"
    copy = file.with_name(f"{file.name}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    wal = file.with_name(f"{file.name}-wal")
    try:
        shutil.copy2(file, copy)
        if wal.exists() and wal.stat().st_size:
            shutil.copy2(wal, copy.with_name(f"{copy.name}-wal"))
    except OSError as error:
        return f"a copy could not be made ({error.strerror})"
    return f"a copy is {copy}"
