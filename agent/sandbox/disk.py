"""Measures a thread's disk usage, and sets the owner of its folders. Blocking."""

import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from agent.config import SandboxConfig
from agent.errors import SandboxError

MAX_COUNTED = 1_000_000
"""Maximum number of files and folders to measure, to bound the time."""

MAX_DEPTH = 64
"""Maximum nesting of folders: each level takes an open descriptor here, and a recursion step when they are deleted."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MIB = 2**20
_BLOCK = 512  # bytes; the unit of st_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimits:
    """Disk limits.

    Attributes:
        quota_mb: Size of one thread's files, MiB.
        free_mb: Space that must stay free on the disk, MiB.
        entries: Number of files and folders of one thread: even an empty file takes an inode.
    """

    quota_mb: int = 2048
    free_mb: int = 512
    entries: int = 200_000


def disk_limits(config: SandboxConfig) -> DiskLimits:
    """Return the limits of the `sandbox` section."""
    return DiskLimits(quota_mb=config.disk_quota_mb, free_mb=config.min_free_disk_mb)


@dataclass(slots=True, kw_only=True)
class DiskUsage:
    """Disk usage of a thread's folders.

    Attributes:
        size: Bytes on disk; holes in files do not count.
        entries: Number of files and folders, as far as counted.
        is_deep: Whether folders are nested deeper than `MAX_DEPTH`. Deeper content is not counted.
    """

    size: int = 0
    entries: int = 0
    is_deep: bool = False

    def problem(self, limits: DiskLimits) -> str:
        """Return a sentence for the model about the exceeded limit; "" if none is exceeded."""
        if self.is_deep:
            return f"Folders are nested deeper than {MAX_DEPTH} levels: delete them."
        if self.entries > limits.entries:
            return f"There are more than {limits.entries} files: delete those you do not need."
        if self.size > limits.quota_mb * _MIB:
            return (
                f"This conversation's files take {self.size // _MIB} MB, more than the limit of "
                f"{limits.quota_mb} MB: delete those you do not need."
            )
        return ""


def measure_usage(folder: Path, uid: int | None = None) -> DiskUsage:
    """Measure a folder. With `uid`, also make this user the owner of its content.

    Walks by descriptors, without following symlinks. Files with several hard links keep their owner, because they may
    also have a name outside the folder. Folders without permissions for their own user get them back, so that nothing
    hides in them.

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
                continue  # removed in the meantime
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """An amount of bytes and of files."""

    size: int
    entries: int


class DiskMeter:
    """Estimates how much a thread may still write, without counting its files each time.

    Counting is slow, so the meter mostly estimates. The decrease of the disk's free space since the last count is quick
    to read. Commands cannot have written more than this, unless files were deleted elsewhere in the meantime. The file
    tools' writes are known exactly. File systems without a fixed number of inodes, such as btrfs, do not report how
    many files were created; on these, only counting helps.

    Attributes:
        folder: The thread's files.
        limits: Their limits.
        usage: The result of the last count.
    """

    def __init__(self, folder: Path, limits: DiskLimits) -> None:
        self.folder = folder
        self.limits = limits
        self.usage = DiskUsage()
        self._free: DiskSpace | None = None
        self._allowed = DiskSpace(size=0, entries=0)
        self._lock = threading.Lock()

    def count(self, uid: int | None = None) -> DiskUsage:
        """Count the files; see `measure_usage`."""
        with self._lock:
            free = _free_space(
                self.folder
            )  # read before counting, which may miss concurrent writes
            self.usage = measure_usage(self.folder, uid)
            self._free = free
            self._allowed = DiskSpace(size=0, entries=0)
            return self.usage

    def growth(self) -> DiskSpace:
        """Return the most that the thread can have written since the last count."""
        now, before = _free_space(self.folder), self._free
        if before is None:
            return DiskSpace(size=0, entries=0)
        return DiskSpace(
            size=max(before.size - now.size, self._allowed.size),
            entries=max(before.entries - now.entries, self._allowed.entries),
        )

    def free_size(self) -> int:
        """Return the free bytes on the disk."""
        return _free_space(self.folder).size

    def is_disk_low(self) -> bool:
        """Return whether the disk has less free space than must stay free."""
        return self.free_size() < self.limits.free_mb * _MIB

    def require_space(self, size: int) -> None:
        """Check that a file of this size can be written.

        Raises:
            SandboxError: It would exceed the limits, or the disk is nearly full.
        """
        if self._free is None or not self._has_space(size):
            self.count()
        if not self._has_space(size) or self.is_disk_low():
            raise SandboxError(
                "this conversation is out of disk space: delete files you do not need"
            )
        allowed = self._allowed
        self._allowed = DiskSpace(size=allowed.size + size, entries=allowed.entries + 1)

    def _has_space(self, size: int) -> bool:
        growth, usage = self.growth(), self.usage
        return (
            not usage.is_deep
            and usage.size + growth.size + size <= self.limits.quota_mb * _MIB
            and usage.entries + growth.entries < self.limits.entries
        )


def _free_space(folder: Path) -> DiskSpace:
    """Return the free disk space for unprivileged users."""
    status = os.statvfs(folder)
    return DiskSpace(size=status.f_bavail * status.f_frsize, entries=status.f_ffree)


def _set_owner(name: str, status: os.stat_result, folder: int, uid: int | None) -> None:
    is_folder = stat.S_ISDIR(status.st_mode)
    if uid is not None and status.st_uid != uid and (is_folder or status.st_nlink == 1):
        os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
    if is_folder and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        _unlock_folder(name, folder)


def _unlock_folder(name: str, parent: int) -> None:
    # By descriptor: chmod by name would follow a symlink swapped in by a command.
    try:
        folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except OSError:
        return
    try:
        Path(f"/proc/self/fd/{folder}").chmod(0o700)
    finally:
        os.close(folder)
