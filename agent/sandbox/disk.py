"""Measures a thread's disk usage, and gives its folders to the user that its commands run as. Blocking."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_COUNTED = 1_000_000
"""Maximum number of files and folders that are measured: bounds the time."""

MAX_DEPTH = 64
"""Maximum nesting of folders: each level costs an open descriptor here, and a step for whoever deletes them."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MIB = 2**20
_BLOCK = 512  # bytes, the unit of st_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimits:
    """Disk limits.

    Attributes:
        quota_mb: Size of one thread's files, MiB.
        free_mb: Space that must stay free on the disk, MiB.
        entries: Files and folders of one thread: each costs an inode, however small it is.
    """

    quota_mb: int = 2048
    free_mb: int = 512
    entries: int = 200_000


@dataclass(slots=True, kw_only=True)
class DiskUsage:
    """Disk usage of a thread's folders.

    Attributes:
        size: Bytes on disk; holes in files do not count.
        entries: Number of files and folders, as far as counted.
        is_deep: Whether folders are nested deeper than `MAX_DEPTH`; what is below is not counted.
    """

    size: int = 0
    entries: int = 0
    is_deep: bool = False

    def exceeds(self, limits: DiskLimits) -> bool:
        """Say whether it exceeds a thread's limits."""
        too_many = self.entries > limits.entries or self.is_deep
        return too_many or self.size > limits.quota_mb * _MIB


def measure_usage(folder: Path, uid: int | None = None) -> DiskUsage:
    """Measure a folder; if `uid` is given, make that user the owner of its content.

    Walks by descriptors and follows no symlink. Files with several hard links keep their owner: they may have a name
    elsewhere. Folders closed to their own user are opened again, so nothing hides in them.

    Raises:
        OSError: The folder cannot be read.
    """
    usage = DiskUsage()
    start = os.open(folder, _FOLDER)
    try:
        _measure(start, usage, uid, depth=0)
    finally:
        os.close(start)
    return usage


def _measure(folder: int, usage: DiskUsage, uid: int | None, *, depth: int) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if usage.entries > MAX_COUNTED:
                return
            try:
                status = entry.stat(follow_symlinks=False)
                usage.entries += 1
                usage.size += status.st_blocks * _BLOCK
                _set_owner(entry.name, status, folder, uid)
            except FileNotFoundError:
                continue  # removed meanwhile
            if stat.S_ISDIR(status.st_mode):
                _measure_below(entry.name, folder, usage, uid, depth=depth + 1)


def _measure_below(
    name: str, parent: int, usage: DiskUsage, uid: int | None, *, depth: int
) -> None:
    if depth > MAX_DEPTH:
        usage.is_deep = True
        return
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except OSError:
        return  # removed, or replaced by a link
    try:
        _measure(folder, usage, uid, depth=depth)
    finally:
        os.close(folder)


def free_bytes(folder: Path) -> int:
    """Return the free disk space for unprivileged users."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_disk_low(folder: Path, limits: DiskLimits) -> bool:
    """Say whether less is free than must stay free."""
    return free_bytes(folder) < limits.free_mb * _MIB


def _set_owner(name: str, status: os.stat_result, folder: int, uid: int | None) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    if uid is not None and status.st_uid != uid and (is_folder or status.st_nlink == 1):
        os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
    if is_folder and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        _unlock_folder(name, folder)


def _unlock_folder(name: str, parent: int) -> None:
    # By descriptor: chmod by name would follow a symlink put there meanwhile.
    try:
        folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return
    try:
        Path(f"/proc/self/fd/{folder}").chmod(0o700)
    finally:
        os.close(folder)
