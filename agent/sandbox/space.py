"""How much of the disk a thread uses, and giving its folders to the user that its commands run as. Blocking."""

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 200_000
"""Most files and folders of one thread: each costs an inode, however small it is."""

_MIB = 2**20
_BLOCK = 512  # bytes, the unit of st_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What the disk may hold.

    Attributes:
        quota_mb: Of one thread; MiB.
        free_mb: What must stay free for everybody; MiB.
    """

    quota_mb: int = 2048
    free_mb: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a thread's folders hold: bytes on disk (holes in files do not count), files and folders."""

    size: int
    entries: int

    def over(self, space: Space) -> bool:
        """Say whether it is more than a thread may have."""
        return self.size > space.quota_mb * _MIB or self.entries > MAX_ENTRIES


def survey(folder: Path, owner: int | None = None) -> Usage:
    """Measure a folder; give what is in it to `owner`, where one is named.

    Walks by descriptors and follows no symlink. A file with several names is not given away: it may have a
    name elsewhere. Folders that were closed to their own user are opened again: nothing hides in them.
    """
    size = entries = 0
    for _, folders, names, here in os.fwalk(folder, follow_symlinks=False):
        for name, status in _statuses(here, (*folders, *names)):
            entries += 1
            size += status.st_blocks * _BLOCK
            if entries > MAX_ENTRIES:
                return Usage(size=size, entries=entries)
            with contextlib.suppress(FileNotFoundError):
                _put_right(name, status, here, owner)
    return Usage(size=size, entries=entries)


def free_bytes(folder: Path) -> int:
    """Return what unprivileged users may still write where a folder is."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_short(folder: Path, space: Space) -> bool:
    """Say whether less is free than must stay free."""
    return free_bytes(folder) < space.free_mb * _MIB


def _statuses(here: int, names: Iterable[str]) -> Iterable[tuple[str, os.stat_result]]:
    for name in names:
        try:
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        yield name, status


def _put_right(name: str, status: os.stat_result, here: int, owner: int | None) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    if owner is not None and status.st_uid != owner and (is_folder or status.st_nlink == 1):
        os.chown(name, owner, owner, dir_fd=here, follow_symlinks=False)
    if is_folder and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        _open_up(name, here)


def _open_up(name: str, here: int) -> None:
    # By descriptor: chmod by name would follow a symlink that is put there just now.
    try:
        folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
    except OSError:
        return
    try:
        Path(f"/proc/self/fd/{folder}").chmod(0o700)
    finally:
        os.close(folder)
