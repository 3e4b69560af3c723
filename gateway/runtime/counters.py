"""Counters and duration histograms. Only used on the event loop, so there are no locks."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

RUN_BUCKETS_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Bucket bounds from an instant answer to a run with many subagents, seconds."""


class DurationHistogram:
    """A histogram of durations.

    Attributes:
        bounds: Upper bounds of the buckets, ascending, seconds.
        total_s: The sum of all durations.
        count: The number of durations.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total_s = 0.0
        self.count = 0
        self._buckets = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Record one duration. Negative durations (the clock was set back) count as 0."""
        seconds = max(seconds, 0.0)
        self._buckets[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds
        self.count += 1

    def cumulative(self) -> list[tuple[float, int]]:
        """Return (bound, number of durations up to it) for each bound.

        >>> some = DurationHistogram([1, 5])
        >>> for seconds in (0.5, 1, 3, 9): some.observe(seconds)
        >>> some.cumulative(), some.count
        ([(1, 2), (5, 3)], 4)
        """
        counts, sofar = [], 0
        for bound, here in zip(self.bounds, self._buckets, strict=False):
            sofar += here
            counts.append((bound, sofar))
        return counts


class RunCounters:
    """Counts the runs that ended in this process.

    Attributes:
        finished_by_status: Number of runs by status.
        durations: Times from the request to the end, including the wait for the thread.
    """

    def __init__(self) -> None:
        self.finished_by_status: Counter[str] = Counter()
        self.durations = DurationHistogram(RUN_BUCKETS_S)

    def record_finished(self, status: str, seconds: float) -> None:
        """Record the end of a run."""
        self.finished_by_status[status] += 1
        self.durations.observe(seconds)
