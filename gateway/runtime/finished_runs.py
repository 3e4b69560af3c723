"""FinishedRuns: runs that ended recently, kept so that they can still be joined and replayed."""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.runtime.live_run import LiveRun

UNPACKED_RUNS = 200
"""Runs that are kept as they ended: many are read once more. Of older ones, the small events are compressed."""

FRESH_BYTES = 16 * 1024 * 1024
"""Events that are kept. Beyond it large ones of the oldest runs are compressed, which takes 1 ms per 100 kB."""


@dataclass(slots=True, eq=False)
class _FinishedRun:
    live: LiveRun
    until: float
    bytes: int


class FinishedRuns:
    """Finished runs, oldest first, limited in age and size.

    Args:
        keep_s: How long a run is kept, seconds.
        keep_bytes: Size limit of all events together; beyond it the oldest runs are dropped early.

    Attributes:
        bytes: The size of all events and results in memory.
    """

    def __init__(self, *, keep_s: float, keep_bytes: int) -> None:
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[str, _FinishedRun] = OrderedDict()
        self._newest: dict[str, _FinishedRun] = {}
        self._unpacked: OrderedDict[str, _FinishedRun] = OrderedDict()
        self._fresh: OrderedDict[str, _FinishedRun] = OrderedDict()
        self.bytes = self._fresh_bytes = 0

    def add(self, live: LiveRun, *, now: float) -> None:
        """Keep a finished run. `now` comes from a monotonic clock."""
        kept = _FinishedRun(live, now + self._keep_s, live.stored_bytes)
        if (earlier := self._newest.get(live.thread_id)) is not None:
            earlier.live.log.rebase(live.log)
            self._count_again(earlier)
        self._kept[live.run_id] = self._fresh[live.run_id] = self._newest[live.thread_id] = kept
        self._unpacked[live.run_id] = kept
        self.bytes += kept.bytes
        self._fresh_bytes += kept.bytes
        self._pack_oldest()
        self._compress_oldest()
        self.evict(now=now)

    def find(self, run_id: str) -> LiveRun | None:
        """Return a run, or None if it is no longer kept."""
        kept = self._kept.get(run_id)
        return kept.live if kept else None

    def for_thread(self, thread_id: str) -> list[LiveRun]:
        """Return the kept runs of a thread, in the order of their ends."""
        return [k.live for k in self._kept.values() if k.live.thread_id == thread_id]

    def remove(self, run_id: str) -> None:
        """Drop one run."""
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            self.bytes -= kept.bytes
            self._unpacked.pop(run_id, None)
            if self._fresh.pop(run_id, None) is not None:
                self._fresh_bytes -= kept.bytes
            if self._newest.get(kept.live.thread_id) is kept:
                del self._newest[kept.live.thread_id]

    def remove_thread(self, thread_id: str) -> None:
        """Drop the runs of a thread."""
        for run_id in [k for k, v in self._kept.items() if v.live.thread_id == thread_id]:
            self.remove(run_id)

    def evict(self, *, now: float) -> None:
        """Drop the runs beyond the limits."""
        while self._kept:
            run_id, oldest = next(iter(self._kept.items()))
            if oldest.until > now and self.bytes <= self._keep_bytes:
                return
            self.remove(run_id)

    def _pack_oldest(self) -> None:
        while len(self._unpacked) > UNPACKED_RUNS:
            _, oldest = self._unpacked.popitem(last=False)
            oldest.live.pack()
            self._count_again(oldest)

    def _compress_oldest(self) -> None:
        while self._fresh_bytes > FRESH_BYTES:
            _, oldest = self._fresh.popitem(last=False)
            self._fresh_bytes -= oldest.bytes
            oldest.live.log.compress()
            self._count_again(oldest)

    def _count_again(self, kept: _FinishedRun) -> None:
        added = kept.live.stored_bytes - kept.bytes
        kept.bytes += added
        self.bytes += added
        if kept.live.run_id in self._fresh:
            self._fresh_bytes += added
