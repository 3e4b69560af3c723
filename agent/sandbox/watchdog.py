"""Watches a confined command while it runs: memory of its processes, and disk space.

Files are counted only if the thread may have reached its limit, judged by what the whole disk lost. The command is
stopped while they are counted, and checks come the faster, the less is left: what can be written beyond a limit is
what fits between two checks, and the slack.
"""

import os
import signal
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from agent.sandbox.disk import DiskMeter, DiskSpace, DiskUsage

TICK_S = 0.2
"""Longest time between two checks of disk space, and between two of memory."""

MIN_TICK_S = 0.005
COUNT_S = 5.0
"""Longest time between two counts: deletions elsewhere hide what is written here."""

SLACK = DiskSpace(size=16 * 2**20, entries=1_000)
"""What a thread near its limit, or above it, can write between two counts; deleting takes space too."""

TEMPORARY_ENTRIES = 20_000
"""Most files in /tmp, and in /dev/shm: each costs about 1 KB of memory."""

_FASTEST = DiskSpace(size=4 * 2**30, entries=400_000)  # what can be written per second
_FREEZE_PASSES = 20
_MIB = 2**20
_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWatchdog:
    """Stops a command that uses too much memory or disk.

    Attributes:
        meter: Measures the thread's files; they were counted when the command started.
        memory_mb: Memory limit of all processes together, MiB.
    """

    meter: DiskMeter
    memory_mb: int

    async def watch(self, pid: int) -> str:
        """Check until the command must be stopped; return the reason, for the model."""
        try:
            return await self._watch(pid)
        except OSError:
            return "The command was stopped: the conversation's files are gone."

    async def _watch(self, pid: int) -> str:
        before = self.meter.usage
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
                reason = reason or await anyio.to_thread.run_sync(self._disk_reason, pid, before)
            if reason:
                return reason

    def _disk_state(self, before: DiskUsage) -> tuple[DiskSpace, bool]:
        """Return what can be written before the files must be counted again, and whether the disk is nearly full."""
        growth, usage, limits = self.meter.growth(), self.meter.usage, self.meter.limits
        size = _limit(limits.quota_mb * _MIB, before.size, SLACK.size) - usage.size
        entries = _limit(limits.entries, before.entries, SLACK.entries) - usage.entries
        room = DiskSpace(
            size=max(size, SLACK.size) - growth.size,
            entries=max(entries, SLACK.entries) - growth.entries,
        )
        return room, self.meter.is_disk_low()

    def _memory_reason(self, pid: int) -> str:
        if process_tree_memory(pid) > self.memory_mb * _MIB:
            return f"The command was stopped: it used more than {self.memory_mb} MB of memory."
        if any(_temporary_entries(one) > TEMPORARY_ENTRIES for one in _process_tree(pid)):
            return f"The command was stopped: /tmp has more than {TEMPORARY_ENTRIES} files."
        return ""

    def _disk_reason(self, pid: int, before: DiskUsage) -> str:
        with _frozen(pid):
            usage = self.meter.count()
            size = usage.size + _deleted_size(pid, self.meter.folder)
        limits = self.meter.limits
        is_over = (
            size > _limit(limits.quota_mb * _MIB, before.size, SLACK.size)
            or usage.entries > _limit(limits.entries, before.entries, SLACK.entries)
            or (usage.is_deep and not before.is_deep)
        )
        return "The command was stopped: it reached a limit of disk space." if is_over else ""


def _limit(limit: int, before: int, slack: int) -> int:
    """Return the limit that applies to a command: one that starts above it can still delete."""
    return limit if before <= limit else before + slack


def _pause(room: DiskSpace) -> float:
    """Return the seconds until the next check: before the room can be used up."""
    soonest = min(room.size / _FASTEST.size, room.entries / _FASTEST.entries)
    return min(TICK_S, max(MIN_TICK_S, soonest))


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    """Stop a process and its descendants; continue them at the end."""
    stopped: set[int] = set()
    try:
        for _ in range(_FREEZE_PASSES):
            running = set(_process_tree(pid)) - stopped
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


def process_tree_memory(pid: int) -> int:
    """Return the memory of a process and its descendants, bytes. Shared pages are counted once."""
    pids = list(_process_tree(pid))
    # The quick figure counts shared pages several times. It is never too small, so it is usually enough.
    rough = sum(_field(Path(f"/proc/{one}/status"), "VmRSS:") for one in pids)
    if len(pids) == 1 or rough < 64 * _MIB:
        return rough
    return sum(_field(Path(f"/proc/{one}/smaps_rollup"), "Pss:") for one in pids)


def _process_tree(pid: int) -> Iterable[int]:
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        for task in _names(Path(f"/proc/{one}/task")):
            children = _text(Path(f"/proc/{one}/task/{task}/children"))
            waiting.extend(int(child) for child in children.split())


def _temporary_entries(pid: int) -> int:
    """Return the number of files in a process's temporary folders; 0 if it sees no others than this process."""
    found = 0
    for folder in ("tmp", "dev/shm"):
        with suppress(OSError):  # it has ended
            path = Path(f"/proc/{pid}/root", folder)
            if path.stat().st_dev != Path("/", folder).stat().st_dev:
                status = os.statvfs(path)
                found = max(found, status.f_files - status.f_ffree)
    return found


def _deleted_size(pid: int, folder: Path) -> int:
    """Return the bytes on the folder's disk of files that were deleted and that processes keep open."""
    disk = folder.stat().st_dev
    sizes: dict[int, int] = {}
    for one in _process_tree(pid):
        for name in _names(Path(f"/proc/{one}/fd")):
            with suppress(OSError):  # closed, or the process has ended
                status = Path(f"/proc/{one}/fd/{name}").stat()
                if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == disk:
                    sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _field(file: Path, name: str) -> int:
    """Return a field given in kB as bytes; 0 if the process is gone."""
    for line in _text(file).splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * _KIB
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
