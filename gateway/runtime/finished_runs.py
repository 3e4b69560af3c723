"""FinishedRuns: runs that ended recently, kept so that clients can still join and replay them."""

from collections import OrderedDict

from gateway.runtime.local_run import LocalRun

FRESH_BYTES = 16 * 1024 * 1024
"""Maximum size of runs that stay uncompressed, bytes, because clients read many of them once more. Beyond it, the
oldest are sealed.
"""


class FinishedRuns:
    """Finished runs, oldest first, limited in age and size.

    Args:
        keep_s: How long a run is kept, seconds.
        keep_bytes: Size limit of all runs together. Beyond it, the oldest are dropped early.

    Attributes:
        bytes: The size of all runs in memory.
    """

    def __init__(self, *, keep_s: float, keep_bytes: int) -> None:
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[str, tuple[LocalRun, float]] = OrderedDict()
        self._fresh: OrderedDict[str, LocalRun] = OrderedDict()
        self.bytes = self._fresh_bytes = 0

    def add(self, live: LocalRun, *, now: float) -> None:
        """Keep a finished run. `now` comes from a monotonic clock."""
        self._kept[live.run_id] = live, now + self._keep_s
        self._fresh[live.run_id] = live
        self.bytes += live.stored_bytes
        self._fresh_bytes += live.stored_bytes
        while self._fresh_bytes > FRESH_BYTES:
            _, oldest = self._fresh.popitem(last=False)
            self._fresh_bytes -= oldest.stored_bytes
            self.bytes -= oldest.stored_bytes
            oldest.seal()
            self.bytes += oldest.stored_bytes
        self.evict(now=now)

    def find(self, run_id: str) -> LocalRun | None:
        """Return a run, or None if it is no longer kept."""
        live, _ = self._kept.get(run_id, (None, 0.0))
        return live

    def for_thread(self, thread_id: str) -> list[LocalRun]:
        """Return the kept runs of a thread, in the order of their ends."""
        return [live for live, _ in self._kept.values() if live.thread_id == thread_id]

    def remove(self, run_id: str) -> None:
        """Drop one run."""
        live, _ = self._kept.pop(run_id, (None, 0.0))
        if live is not None:
            self.bytes -= live.stored_bytes
        if self._fresh.pop(run_id, None) is not None and live is not None:
            self._fresh_bytes -= live.stored_bytes

    def remove_thread(self, thread_id: str) -> None:
        """Drop the runs of a thread."""
        for live in self.for_thread(thread_id):
            self.remove(live.run_id)

    def evict(self, *, now: float) -> None:
        """Drop the runs beyond the limits."""
        while self._kept:
            live, until = next(iter(self._kept.values()))
            if until > now and self.bytes <= self._keep_bytes:
                return
            self.remove(live.run_id)
