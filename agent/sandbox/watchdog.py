"""Watches a confined command while it runs: total memory of its processes, and disk space."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from agent.sandbox.disk import DiskLimits, DiskUsage, free_bytes, is_disk_low, measure_usage

TICK_S = 0.2
SLACK_MB = 16
"""How far a command that may not write can still grow the folders: names and empty folders take space too."""

_MIB = 2**20
_KIB = 1024
_MEASURE_EVERY = 25  # ticks, at least; free space is checked at each tick


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWatchdog:
    """Stops a command that uses too much memory or disk.

    Attributes:
        folder: The thread's files.
        before: Their size when the command started.
        disk: Their limits.
        memory_mb: Memory limit of all processes together, MiB.
        tick_s: Seconds between checks.
    """

    folder: Path
    before: DiskUsage
    disk: DiskLimits
    memory_mb: int
    tick_s: float = TICK_S

    async def watch(self, pid: int) -> str:
        """Check every `tick_s` seconds; return a reason, for the model, when the command must be stopped."""
        try:
            return await self._watch(pid)
        except OSError:
            return "The command was stopped: the conversation's files are gone."

    async def _watch(self, pid: int) -> str:
        free_before = await anyio.to_thread.run_sync(free_bytes, self.folder)
        ticks = 0
        while True:
            await anyio.sleep(self.tick_s)
            ticks += 1
            reason = await anyio.to_thread.run_sync(self._reason, pid, free_before, ticks)
            if reason:
                return reason

    def _reason(self, pid: int, free_before: int, ticks: int) -> str:
        if process_tree_memory(pid) > self.memory_mb * _MIB:
            return f"The command was stopped: it used more than {self.memory_mb} MB of memory."
        if free_before > self.disk.free_mb * _MIB and is_disk_low(self.folder, self.disk):
            return "The command was stopped: the disk is nearly full."
        written = free_before - free_bytes(self.folder)
        left = max(self.disk.quota_mb * _MIB - self.before.size, SLACK_MB * _MIB)
        if ticks % _MEASURE_EVERY == 0 or written > left:
            return self._quota_reason(measure_usage(self.folder))
        return ""

    def _quota_reason(self, usage: DiskUsage) -> str:
        grew = usage.size > self.before.size + SLACK_MB * _MIB
        if usage.exceeds(self.disk) and (grew or not self.before.exceeds(self.disk)):
            return (
                "The command was stopped: the conversation's files take more than the limit of "
                f"{self.disk.quota_mb} MB."
            )
        return ""


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
