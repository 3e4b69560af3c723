"""The data folder: its lock, the process that holds the lock, and key files. Blocking calls."""

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreLocked, StoreUnavailable

LOCK_FILE = "parley.lock"

RESTORE_MARK = ".restoring"
"""Exists in the data folder while a restore replaces its content. An interrupted restore leaves it behind."""

STAGING = ".restore-"
"""Name prefix of the folders inside the data folder into which a restore unpacks a backup."""

KEY_WAIT_S = 1.0
"""How long a key file may be empty because another process is creating it, seconds."""


@contextmanager
def lock_folder(home: Path) -> Iterator[None]:
    """Create the data folder and lock it against other processes.

    The kernel releases the lock when the process ends, even after kill -9.

    Raises:
        StoreLocked: another process holds it.
        StoreUnavailable: the folder cannot be created or written.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unusable_folder(home, error) from error
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
        raise unusable_folder(home, error) from error


def find_interrupted_restore(home: Path) -> str | None:
    """Return a line that says a restore was interrupted and what to do about it; None if none was."""
    if not (home / RESTORE_MARK).exists():
        return None
    return (
        f"{home}: a restore was interrupted, and part of the data is missing: restore again with --force."
        " The previous data is in before-restore-... in this folder"
    )


def remove_unpacked(home: Path) -> None:
    """Remove the data that killed restores unpacked. This process must hold the lock of the data folder.

    Raises:
        OSError: It cannot be removed.
    """
    for folder in home.glob(f"{STAGING}*"):
        shutil.rmtree(folder)


def read_or_create_key(file: Path, new: bytes) -> tuple[bytes, bool]:
    """Return the content of a key file, and whether this call created it (readable only by its owner).

    If several processes do this at once, one creates the file and the others wait until it is written.

    Args:
        file: The file, in an existing folder.
        new: The content to write if there is no file.

    Raises:
        OSError: The file cannot be read or written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read_written(file), False
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(new)
    except OSError:
        file.unlink()
        raise
    return new, True


def _read_written(file: Path) -> bytes:
    deadline = time.monotonic() + KEY_WAIT_S
    while not (content := file.read_bytes()) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    return content


def record_address(home: Path, url: str) -> None:
    """Write the URL of the service that holds the lock into the lock file, for commands on this machine.

    Raises:
        OSError: The file cannot be written.
    """
    with (home / LOCK_FILE).open("r+", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n{url}\n")


def running_address(home: Path) -> str | None:
    """Return the URL of the service that holds the lock; None if no service holds it or its URL is not recorded."""
    try:
        with (home / LOCK_FILE).open("r", encoding="ascii", errors="replace") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        lines = (home / LOCK_FILE).read_text("ascii", errors="replace").splitlines()
        return lines[1] if len(lines) > 1 else None
    except OSError:
        return None
    return None


def unusable_folder(folder: Path, error: OSError) -> StoreUnavailable:
    """Return the error that names the unusable file of the data folder, or the folder itself."""
    file = Path(os.fsdecode(error.filename)) if error.filename else folder
    if file != folder and os.path.lexists(file):
        return StoreUnavailable(
            f"The file {file} cannot be used ({error.strerror}). "
            "Make this user its owner, or move it away."
        )
    return StoreUnavailable(
        f"The data folder {folder} cannot be created or written ({error.strerror}). "
        "Make it writable for this user, or set PARLEY_HOME to another folder."
    )
