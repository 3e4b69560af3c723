"""Writes a backup of a data folder that may be in use. Blocking."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath

from gateway.backup.archive import (
    CHECKPOINTS,
    HOME,
    JOURNAL,
    ArchiveWriter,
    Manifest,
    create_archive,
)
from gateway.backup.layout import is_left_out
from gateway.backup.scratch import scratch_folder
from gateway.command_errors import CommandFailed
from gateway.config import Config
from gateway.version import get_version
from store import checkpoints
from store.snapshot import copy_database, schema_of

THREADS = "threads"
"""The folder in which people's files and the agent's are: some of them may be unreadable."""

MAX_DEPTH = 100
"""Folders within each other: deeper ones are skipped."""

MAX_PATH_BYTES = 3000
"""Of a path in the data folder: a longer one may be too long for the system where it is restored."""

MAX_HOLES = 4 * 2**30
"""Bytes of holes in all sparse files of threads, which cost time in a backup. Files with more are skipped."""

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Deleted, or replaced by something else, since the folder was read."""

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTSUP, errno.ENXIO}


def write_backup(config: Config, file: Path) -> Manifest:
    """Write the data folder into one archive; the service may run meanwhile.

    The journal is copied first, then the checkpoints, then the files: what the journal calls done is in what
    is copied after it, and what it does not call done yet is done again after a restore.

    Raises:
        CommandFailed: There is no data, or the archive cannot be written.
        StoreError: A database is damaged, cannot be read, or is of an earlier version of Parley.
    """
    home, journal = config.home, config.database.file(config.home)
    if not journal.is_file():
        raise CommandFailed(f"there is nothing to back up: {journal} does not exist")
    if file.resolve().is_relative_to(home.resolve()):
        raise CommandFailed(f"{file}: choose a file outside of the data folder {home}")
    if not file.parent.is_dir():
        raise CommandFailed(f"{file}: the folder does not exist")
    with scratch_folder(file.parent) as scratch, create_archive(file, scratch) as archive:
        copy = scratch / "copy.db"
        copy_database(journal, copy)
        schema = schema_of(copy, name=journal)
        _add_database(archive, JOURNAL, copy)
        if (saved := home / checkpoints.FILE).is_file():
            copy_database(saved, copy)
            _add_database(archive, CHECKPOINTS, copy)
        skipped = tuple(_add_files(archive, home, _left_out(config, journal)))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return archive.finish(
            Manifest(version=get_version(), created_at=now, schema=schema, skipped=skipped)
        )


def _add_database(archive: ArchiveWriter, name: str, copy: Path) -> None:
    with copy.open("rb") as opened:
        archive.add_file(name, opened)
    copy.unlink()


def _left_out(config: Config, journal: Path) -> Callable[[str], bool]:
    """Return what tells whether a path, relative to the data folder, is not added."""
    copies = config.files if config.storage.is_bucket else None
    return partial(
        is_left_out,
        journal=os.path.relpath(journal, config.home),
        copies="" if copies is None else os.path.relpath(copies, config.home),
    )


def _add_files(
    archive: ArchiveWriter, home: Path, left_out: Callable[[str], bool]
) -> Iterator[str]:
    """Add everything but the databases; yield the names of files in threads that were skipped.

    The walk goes from open folder to open folder: one that a command replaces by a link meanwhile leads nowhere.
    """
    skipped: list[str] = []
    holes = 0
    for root, folders, files, handle in os.fwalk(home):
        below = Path(root).relative_to(home)
        added: set[str] = set()
        for name in sorted((*folders, *files)):
            path = (below / name).as_posix()
            if left_out(path):
                continue
            try:
                holes += _add_path(archive, path, handle, MAX_HOLES - holes)
                added.add(name)
            except OSError as error:
                skipped += _skipped(path, error)
        folders[:] = sorted(added.intersection(folders)) if len(below.parts) < MAX_DEPTH else []
    yield from sorted(skipped)


def _add_path(archive: ArchiveWriter, path: str, folder: int, max_holes: int) -> int:
    """Add what an open folder contains under the last part of a path; return the bytes of its holes.

    Raises:
        OSError: It cannot be read, or is nothing that can be restored (a socket, a very long path, a thread's file
            with more holes than `max_holes`).
    """
    if path.count("/") >= MAX_DEPTH or len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "the path is too long")
    name = path.rpartition("/")[2]
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        archive.add_link(f"{HOME}{path}", os.readlink(name, dir_fd=folder))
    elif stat.S_ISDIR(mode):
        # The walk leaves out what it cannot open, and says nothing.
        os.close(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder))
        archive.add_folder(f"{HOME}{path}")
    elif stat.S_ISREG(mode):
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(handle, "rb") as opened:
            holes = _hole_bytes(handle) if path.startswith(f"{THREADS}/") else 0
            if holes > max_holes:
                raise OSError(errno.ENOTSUP, "its holes are too large")
            archive.add_file(f"{HOME}{path}", opened)
            return holes
    else:
        raise OSError(errno.ENOTSUP, "not a file")
    return 0


def _hole_bytes(file: int) -> int:
    """Return how many bytes of an open file are not on the disk; 0 if the file system does not tell."""
    status = os.fstat(file)
    if status.st_blocks * 512 >= status.st_size:
        return 0
    data = at = 0
    while at < status.st_size:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
            end = os.lseek(file, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return 0
            break  # the rest is a hole
        data, at = data + end - at, end
    os.lseek(file, 0, os.SEEK_SET)
    return max(0, status.st_size - data)


def _skipped(path: str, error: OSError) -> Iterator[str]:
    """Yield a path that is left out, unless it is gone anyway. Raises the error if the data are incomplete then."""
    if error.errno in _GONE:
        return
    if error.errno not in _UNREADABLE or PurePosixPath(path).parts[:1] != (THREADS,):
        raise error
    yield f"{path} ({error.strerror})"
