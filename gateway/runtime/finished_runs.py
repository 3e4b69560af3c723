"""FinishedRuns: runs that ended recently, kept so that they can still be joined and replayed."""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.runtime.event_diffs import MIN_REBASED_BYTES
from gateway.runtime.live_run import LiveRun
from gateway.runtime.packed_run import PackedRun, pack_run

UNPACKED_RUNS = 200
"""Runs that are kept as they ended: many are read once more. Older ones are packed."""

FRESH_BYTES = 16 * 1024 * 1024
"""Events that are kept. Beyond it large ones of the oldest runs are compressed, which takes 1 ms per 100 kB."""


@dataclass(slots=True, eq=False)
class _FinishedRun:
    run_id: str
    run: LiveRun | PackedRun
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
        self._unpacked: OrderedDict[str, LiveRun] = OrderedDict()
        self._fresh: OrderedDict[str, _FinishedRun] = OrderedDict()
        self.bytes = self._fresh_bytes = 0

    def add(self, live: LiveRun, *, now: float) -> None:
        """Keep a finished run. `now` comes from a monotonic clock."""
        kept = _FinishedRun(live.run_id, live, now + self._keep_s, live.stored_bytes)
        if (earlier := self._newest.get(live.thread_id)) is not None:
            earlier.run.rebase(live)
            self._count_again(earlier)
        self._kept[live.run_id] = self._fresh[live.run_id] = self._newest[live.thread_id] = kept
        self._unpacked[live.run_id] = live
        self.bytes += kept.bytes
        self._fresh_bytes += kept.bytes
        self._pack_oldest()
        self._compress_oldest()
        self.evict(now=now)

    def find(self, run_id: str) -> LiveRun | None:
        """Return a run, or None if it is no longer kept; of a packed one, another object each time."""
        kept = self._kept.get(run_id)
        return _unpacked(kept.run) if kept else None

    def for_thread(self, thread_id: str) -> list[LiveRun]:
        """Return the kept runs of a thread, in the order of their ends."""
        return [_unpacked(k.run) for k in self._kept.values() if k.run.thread_id == thread_id]

    def remove(self, run_id: str) -> None:
        """Drop one run."""
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            self.bytes -= kept.bytes
            self._unpacked.pop(run_id, None)
            self._forget_large(kept)

    def remove_thread(self, thread_id: str) -> None:
        """Drop the runs of a thread."""
        for run_id in [k for k, v in self._kept.items() if v.run.thread_id == thread_id]:
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
            run_id, live = self._unpacked.popitem(last=False)
            kept = self._kept[run_id]
            if packed := pack_run(live):
                kept.run = packed
            else:
                live.row = live.lean_row
                live.log.compress(max_bytes=MIN_REBASED_BYTES)
            self._count_again(kept)
            if packed and not packed.large:
                self._forget_large(kept)

    def _compress_oldest(self) -> None:
        while self._fresh_bytes > FRESH_BYTES:
            _, oldest = self._fresh.popitem(last=False)
            self._fresh_bytes -= oldest.bytes
            oldest.run.compress()
            self._count_again(oldest)

    def _count_again(self, kept: _FinishedRun) -> None:
        added = kept.run.stored_bytes - kept.bytes
        kept.bytes += added
        self.bytes += added
        if kept.run_id in self._fresh:
            self._fresh_bytes += added

    def _forget_large(self, kept: _FinishedRun) -> None:
        """Forget what is remembered of a run for its large events."""
        if self._fresh.pop(kept.run_id, None) is not None:
            self._fresh_bytes -= kept.bytes
        if self._newest.get(kept.run.thread_id) is kept:
            del self._newest[kept.run.thread_id]


def _unpacked(run: LiveRun | PackedRun) -> LiveRun:
    return run.unpack() if isinstance(run, PackedRun) else run
