"""Watches the memory and disk space of a running confined command.

Files are counted only if the thread may have reached its limit, judged by the decrease of the disk's free space. The
command is paused during a count. The less space is left, the more often the watchdog checks. A command can exceed a
limit only by the slack and by what it writes between two checks.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from agent.sandbox.disk import DiskMeter, DiskSpace, DiskUsage
from agent.sandbox.process_tree import (
    deleted_files,
    process_tree,
    process_tree_memory,
    socket_memory,
)

TICK_S = 0.2
"""Longest time between two checks of disk space, and between two checks of memory, seconds."""

MIN_TICK_S = 0.005
COUNT_S = 5.0
"""Longest time between two counts, seconds: deletions elsewhere on the disk hide this thread's writes."""

SLACK = DiskSpace(size=16 * 2**20, entries=1_000)
"""Bytes that a thread near or above its limit can write between two counts. Deleting files also takes space."""

TEMPORARY_ENTRIES = 20_000
"""Maximum number of files in /tmp and in /dev/shm. Each takes about 1 KB of memory."""

_FASTEST = DiskSpace(size=4 * 2**30, entries=400_000)  # bytes that a command can write per second
_FREEZE_PASSES = 20
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWatchdog:
    """Stops a command that uses too much memory or disk.

    Attributes:
        meter: Measures the thread's files. They were counted when the command started.
        memory_mb: Memory limit of all processes together, MiB.
        file_mb: Size limit of one file, MiB.
    """

    meter: DiskMeter
    memory_mb: int
    file_mb: int

    async def watch(self, pid: int) -> str:
        """Check until the command must be stopped. Return the reason, for the model."""
        try:
            return await self._watch(pid)
        except OSError:
            return "The command was stopped: the conversation's files are gone."

    async def _watch(self, pid: int) -> str:
        before, free = self.meter.usage, self.meter.free_size()
        was_low = await anyio.to_thread.run_sync(self.meter.is_disk_low)
        counted_at = looked_at = anyio.current_time()
        pause = MIN_TICK_S
        while True:
            await anyio.sleep(pause)
            now = anyio.current_time()
            room, is_low = await anyio.to_thread.run_sync(self._disk_state, before)
            pause = _pause(room)
            if is_low and not was_low:
                return "The command was stopped: the disk is nearly full."
            reason = ""
            if now - looked_at >= TICK_S:
                looked_at = now
                reason = await anyio.to_thread.run_sync(self._memory_reason, pid)
            if min(room.size, room.entries) <= 0 or now - counted_at >= COUNT_S:
                counted_at = now
                reason = reason or await anyio.to_thread.run_sync(
                    self._disk_reason, pid, before, free
                )
            if reason:
                return reason

    def _disk_state(self, before: DiskUsage) -> tuple[DiskSpace, bool]:
        """Return how much can be written before the next count, bytes, and whether the disk is nearly full."""
        growth, usage, limits = self.meter.growth(), self.meter.usage, self.meter.limits
        size = _limit(limits.quota_mb * _MIB, before.size, SLACK.size) - usage.size
        entries = _limit(limits.entries, before.entries, SLACK.entries) - usage.entries
        room = DiskSpace(
            size=max(size, SLACK.size) - growth.size,
            entries=max(entries, SLACK.entries) - growth.entries,
        )
        return room, self.meter.is_disk_low()

    def _memory_reason(self, pid: int) -> str:
        limit = self.memory_mb * _MIB
        if (used := process_tree_memory(pid)) > limit or used + socket_memory(pid) > limit:
            return f"The command was stopped: it used more than {self.memory_mb} MB of memory."
        if any(_temporary_entries(one) > TEMPORARY_ENTRIES for one in process_tree(pid)):
            return f"The command was stopped: /tmp has more than {TEMPORARY_ENTRIES} files."
        return ""

    def _disk_reason(self, pid: int, before: DiskUsage, free: int) -> str:
        """Count the files and return the reason to stop. `free`: bytes that were free when the command started."""
        with _frozen(pid):
            usage = self.meter.count()
            deleted = deleted_files(pid, self.meter.folder)
            lost = free - self.meter.free_size()
        size = usage.size + deleted.size
        # Bound files of unknown size by the file size limit and by the decrease of free space.
        size += min(deleted.unmeasured * self.file_mb * _MIB, max(0, lost - (size - before.size)))
        limits = self.meter.limits
        is_over = (
            size > _limit(limits.quota_mb * _MIB, before.size, SLACK.size)
            or usage.entries > _limit(limits.entries, before.entries, SLACK.entries)
            or (usage.is_deep and not before.is_deep)
        )
        return "The command was stopped: it reached a limit of disk space." if is_over else ""


def _temporary_entries(pid: int) -> int:
    """Return the number of files in a process's temporary folders; 0 if they are the same as this process's."""
    found = 0
    for folder in ("tmp", "dev/shm"):
        with suppress(OSError):  # it has ended
            path = Path(f"/proc/{pid}/root", folder)
            if path.stat().st_dev != Path("/", folder).stat().st_dev:
                status = os.statvfs(path)
                found = max(found, status.f_files - status.f_ffree)
    return found


def _limit(limit: int, before: int, slack: int) -> int:
    """Return the limit that applies to a command. A command that starts above the limit can still delete files."""
    return limit if before <= limit else before + slack


def _pause(room: DiskSpace) -> float:
    """Return the seconds until the next check, which must come before the remaining space can be used up."""
    soonest = min(room.size / _FASTEST.size, room.entries / _FASTEST.entries)
    return min(TICK_S, max(MIN_TICK_S, soonest))


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    """Pause a process and its descendants, and resume them at the end."""
    stopped: set[int] = set()
    try:
        for _ in range(_FREEZE_PASSES):
            running = set(process_tree(pid)) - stopped
            if not running:
                break
            for one in running:
                _send(one, signal.SIGSTOP)
            stopped |= running
        yield
    finally:
        for one in stopped:
            _send(one, signal.SIGCONT)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
