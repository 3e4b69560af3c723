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
"""The folder with files of people and of the agent. Some of the files may be unreadable."""

MAX_DEPTH = 100
"""Maximum nesting of folders. Deeper ones are skipped."""

MAX_PATH_BYTES = 3000
"""Maximum length of a path in the data folder. A longer one may be too long for the system that restores it."""

MAX_HOLES = 4 * 2**30
"""Maximum bytes of holes in all sparse files of threads, because holes take time too. Files beyond it are skipped."""

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
"""Errors of a path that was deleted or replaced after the folder was read."""

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTSUP, errno.ENXIO}


def write_backup(config: Config, file: Path) -> Manifest:
    """Write the data folder into one archive. The service may be running.

    Copies the journal first, then the checkpoints, then the files. So the archive contains the results of everything
    that the journal marks as done. After a restore, the service repeats everything else.

    Raises:
        CommandFailed: There is nothing to back up, or the archive cannot be written.
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
    """Return a function that decides whether to leave out a path, relative to the data folder."""
    copies = config.files if config.storage.is_bucket else None
    return partial(
        is_left_out,
        journal=os.path.relpath(journal, config.home),
        copies="" if copies is None else os.path.relpath(copies, config.home),
    )


def _add_files(
    archive: ArchiveWriter, home: Path, left_out: Callable[[str], bool]
) -> Iterator[str]:
    """Add everything except the databases. Yield the threads' files that were skipped.

    Opens each folder relative to its open parent. If a command replaces a folder with a link meanwhile, the link is not
    followed.
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
    """Add a path, which `folder` (an open folder) contains. Return the bytes of its holes.

    Raises:
        OSError: The path cannot be read, or could not be restored (a socket, a very long path, a thread's file with
            more bytes of holes than `max_holes`).
    """
    if path.count("/") >= MAX_DEPTH or len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "the path is too long")
    name = path.rpartition("/")[2]
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        archive.add_link(f"{HOME}{path}", os.readlink(name, dir_fd=folder))
    elif stat.S_ISDIR(mode):
        # os.fwalk leaves out folders that it cannot open without an error.
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
    """Return how many bytes of an open file are holes; 0 if the file system does not say."""
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
            break  # The rest is a hole.
        data, at = data + end - at, end
    os.lseek(file, 0, os.SEEK_SET)
    return max(0, status.st_size - data)


def _skipped(path: str, error: OSError) -> Iterator[str]:
    """Yield the description of a skipped path; nothing if it is gone. Raises the error if the path is essential."""
    if error.errno in _GONE:
        return
    if error.errno not in _UNREADABLE or PurePosixPath(path).parts[:1] != (THREADS,):
        raise error
    yield f"{path} ({error.strerror})"
