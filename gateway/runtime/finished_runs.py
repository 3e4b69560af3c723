"""FinishedRuns: runs that ended recently, kept so that they can still be joined and replayed."""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.runtime.live_run import LiveRun


@dataclass(frozen=True, slots=True)
class _FinishedRun:
    live: LiveRun
    until: float
    bytes: int


class FinishedRuns:
    """Finished runs, oldest first, limited in age and size.

    Args:
        keep_s: How long a run is kept, seconds.
        keep_bytes: Size limit of all events together; beyond it the oldest runs are dropped early.
    """

    def __init__(self, *, keep_s: float, keep_bytes: int) -> None:
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[str, _FinishedRun] = OrderedDict()
        self._bytes = 0

    def add(self, live: LiveRun, *, now: float) -> None:
        """Keep a finished run. `now` comes from a monotonic clock."""
        size = live.stored_bytes
        self._kept[live.run_id] = _FinishedRun(live, now + self._keep_s, size)
        self._bytes += size
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
            self._bytes -= kept.bytes

    def remove_thread(self, thread_id: str) -> None:
        """Drop the runs of a thread."""
        for run_id in [k for k, v in self._kept.items() if v.live.thread_id == thread_id]:
            self.remove(run_id)

    def evict(self, *, now: float) -> None:
        """Drop the runs beyond the limits."""
        while self._kept:
            run_id, oldest = next(iter(self._kept.items()))
            if oldest.until > now and self._bytes <= self._keep_bytes:
                return
            self.remove(run_id)
