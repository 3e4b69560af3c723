"""Creates folders for incomplete files, next to their destination. Blocking."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gateway.command_errors import CommandFailed

SCRATCH = ".parley-scratch-"
_LOCK = "lock"


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder inside another one. Remove folders that killed processes left there.

    Its owner holds a lock, which the kernel releases even after kill -9.

    Raises:
        CommandFailed: The folder cannot be created.
    """
    for found in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError):  # in use, or owned by another user
            _remove_abandoned(found)
    with ExitStack() as stack:
        try:
            new = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder)))
            lock = stack.enter_context((new / _LOCK).open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise CommandFailed(f"{folder}: nothing can be written ({error.strerror})") from error
        yield new


def _remove_abandoned(found: Path) -> None:
    """Remove a scratch folder. Raises OSError if a process uses it."""
    with suppress(FileNotFoundError):
        lock = os.open(found / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    shutil.rmtree(found)
