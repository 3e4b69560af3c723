"""How much of the disk a thread uses, and giving its folders to the user that its commands run as. Blocking."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_COUNTED = 1_000_000
"""Most files and folders that are looked at: bounds the time."""

MAX_DEPTH = 64
"""How deep folders may lie in each other: each costs an open descriptor here, and whoever removes them a step."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MIB = 2**20
_BLOCK = 512  # bytes, the unit of st_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimits:
    """What the disk may hold.

    Attributes:
        quota_mb: Of one thread; MiB.
        free_mb: What must stay free for everybody; MiB.
        entries: Files and folders of one thread: each costs an inode, however small it is.
    """

    quota_mb: int = 2048
    free_mb: int = 512
    entries: int = 200_000


@dataclass(slots=True, kw_only=True)
class DiskUsage:
    """What a thread's folders hold.

    Attributes:
        size: Bytes on disk; holes in files do not count.
        entries: Files and folders, as far as they were counted.
        is_deep: Whether folders lie deeper in each other than `MAX_DEPTH`; what is in those is not counted.
    """

    size: int = 0
    entries: int = 0
    is_deep: bool = False

    def exceeds(self, space: DiskLimits) -> bool:
        """Say whether it is more than a thread may have."""
        too_many = self.entries > space.entries or self.is_deep
        return too_many or self.size > space.quota_mb * _MIB


def measure_usage(folder: Path, owner: int | None = None) -> DiskUsage:
    """Measure a folder; give what is in it to `owner`, where one is named.

    Walks by descriptors and follows no symlink. A file with several names is not given away: it may have a
    name elsewhere. Folders that were closed to their own user are opened again: nothing hides in them.

    Raises:
        OSError: The folder cannot be read.
    """
    usage = DiskUsage()
    start = os.open(folder, _FOLDER)
    try:
        _count(start, usage, owner, depth=0)
    finally:
        os.close(start)
    return usage


def _count(here: int, usage: DiskUsage, owner: int | None, *, depth: int) -> None:
    with os.scandir(here) as entries:
        for entry in entries:
            if usage.entries > MAX_COUNTED:
                return
            try:
                status = entry.stat(follow_symlinks=False)
                usage.entries += 1
                usage.size += status.st_blocks * _BLOCK
                _put_right(entry.name, status, here, owner)
            except FileNotFoundError:
                continue  # gone meanwhile
            if stat.S_ISDIR(status.st_mode):
                _count_below(entry.name, here, usage, owner, depth=depth + 1)


def _count_below(
    name: str, parent: int, usage: DiskUsage, owner: int | None, *, depth: int
) -> None:
    if depth > MAX_DEPTH:
        usage.is_deep = True
        return
    try:
        here = os.open(name, _FOLDER, dir_fd=parent)
    except OSError:
        return  # gone, or swapped for a link
    try:
        _count(here, usage, owner, depth=depth)
    finally:
        os.close(here)


def free_bytes(folder: Path) -> int:
    """Return what unprivileged users may still write where a folder is."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_disk_low(folder: Path, space: DiskLimits) -> bool:
    """Say whether less is free than must stay free."""
    return free_bytes(folder) < space.free_mb * _MIB


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
