"""Watches a confined command while it runs: its memory as a whole, and the disk."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from agent.sandbox.disk import DiskLimits, DiskUsage, free_bytes, is_disk_low, measure_usage

TICK_S = 0.2
SLACK_MB = 16
"""How far a command that may write nothing may still grow the folders: names and empty folders take space too."""

_MIB = 2**20
_KIB = 1024
_SURVEY_EVERY = 25  # ticks, at least; a look at the free space comes with each


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWatchdog:
    """What is watched.

    Attributes:
        folder: The thread's files.
        before: What they held when the command began.
        disk: What they may hold.
        memory_mb: What all processes together may use; MiB.
        tick_s: Seconds between two looks.
    """

    folder: Path
    before: DiskUsage
    disk: DiskLimits
    memory_mb: int
    tick_s: float = TICK_S

    async def watch(self, pid: int) -> str:
        """Return, with the reason, when the command must be stopped; look every `tick_s` seconds until then."""
        try:
            return await self._stopping(pid)
        except OSError:
            return "The command was stopped: the conversation's files are gone."

    async def _stopping(self, pid: int) -> str:
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
        if ticks % _SURVEY_EVERY == 0 or written > self._left():
            return self._too_much(measure_usage(self.folder))
        return ""

    def _left(self) -> int:
        """Return how many bytes more the thread may use, at least the slack."""
        return max(self.disk.quota_mb * _MIB - self.before.size, SLACK_MB * _MIB)

    def _too_much(self, usage: DiskUsage) -> str:
        grown = usage.size > self.before.size + SLACK_MB * _MIB
        if usage.exceeds(self.disk) and (grown or not self.before.exceeds(self.disk)):
            return (
                "The command was stopped: the conversation's files take more than the "
                f"{self.disk.quota_mb} MB that they may."
            )
        return ""


def process_tree_memory(pid: int) -> int:
    """Return the bytes of memory that a process and all below it use. What they share is counted once."""
    pids = list(_family(pid))
    # The quick figure counts shared pages several times: it is never too small, so mostly it is enough.
    rough = sum(_field(Path(f"/proc/{one}/status"), "VmRSS:") for one in pids)
    if len(pids) == 1 or rough < 64 * _MIB:
        return rough
    return sum(_field(Path(f"/proc/{one}/smaps_rollup"), "Pss:") for one in pids)


def _family(pid: int) -> Iterable[int]:
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        for task in _names(Path(f"/proc/{one}/task")):
            children = _text(Path(f"/proc/{one}/task/{task}/children"))
            waiting.extend(int(child) for child in children.split())


def _field(file: Path, name: str) -> int:
    """Return a field given in kB as bytes; 0 when the process is gone."""
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
