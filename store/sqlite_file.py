"""The SQLite file: lock the data folder, check the file, open it. Blocking calls; nothing here is async."""

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from store.errors import DatabaseCorrupt, StoreLocked, StoreUnavailable
from store.migrations import migrate

LOCK_FILE = "parley.lock"
WAL_PAGES = 1000
"""Pages (4 KB each) in the write-ahead log before a checkpoint copies it into the file: SQLite's default."""

OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with STRICT tables (2021)."""

_DAMAGED = ("file is not a database", "malformed", "file is encrypted")


@contextmanager
def lock_folder(home: Path) -> Iterator[None]:
    """Create the data folder and lock it against other processes.

    The kernel releases the lock when the process ends, also after kill -9.

    Raises:
        StoreLocked: another process holds it.
        StoreUnavailable: the folder cannot be made or written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(home, error) from error
    try:
        _lock(descriptor, home)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, home: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(descriptor, 20).decode(errors="replace").partition("\n")[0] or "unknown"
        raise StoreLocked(
            f"Another Parley process (pid {holder}) uses the data folder {home}. "
            "Stop it, or set PARLEY_HOME to another folder."
        ) from None
    except OSError as error:
        raise _unusable(home, error) from error


def record_address(home: Path, url: str) -> None:
    """Write the URL of the service that holds the lock into the lock file, for commands on this machine.

    Raises:
        OSError: The file cannot be written.
    """
    with (home / LOCK_FILE).open("r+", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n{url}\n")


def running_address(home: Path) -> str | None:
    """Return the URL of the service that holds the lock; None if none does, or it has not recorded one."""
    try:
        with (home / LOCK_FILE).open("r", encoding="ascii", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        lines = (home / LOCK_FILE).read_text("ascii", errors="replace").splitlines()
        return lines[1] if len(lines) > 1 else None
    except OSError:
        return None
    return None


def connect(file: Path, *, busy_timeout_ms: int) -> sqlite3.Connection:
    """Check, open and migrate the database; return the connection for the writer.

    Raises:
        DatabaseCorrupt: the file is damaged; it was copied and not changed.
        SchemaTooNew: a newer Parley wrote it.
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
        raise _unusable(file.parent, error) from error
    _check(file)
    with ExitStack() as stack:
        connection = sqlite3.connect(
            file, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        stack.callback(connection.close)
        try:
            for pragma in _pragmas(busy_timeout_ms):
                connection.execute(pragma)
            migrate(connection)
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


def _check(file: Path) -> None:
    """Read the whole file once (about 60 ms per 100 MB), without writing to it."""
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        verdict = str(error)
        if not any(sign in verdict for sign in _DAMAGED):
            raise StoreUnavailable(f"The database {file} cannot be read: {verdict}.") from error
    if verdict != "ok":
        raise DatabaseCorrupt(
            f"The database {file} is damaged ({verdict}). It was not changed; {_keep(file)}. "
            "Replace it with a backup and start again, or move it away to start with an empty database."
        )


def _keep(file: Path) -> str:
    """Copy a damaged file (and its write-ahead log), once; return a phrase that names the copy."""
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


def _unusable(folder: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The data folder {folder} cannot be created or written ({error.strerror}). "
        "Make it writable for this user, or set PARLEY_HOME to another folder."
    )
