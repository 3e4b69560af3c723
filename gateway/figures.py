"""Figures of the service over the last hour, day or week, in periods for charts."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal

from gateway.shared_result import SharedResult
from store.figures import FigureStore, PeriodFigures

Span = Literal["hour", "day", "week"]

_PERIODS: dict[Span, tuple[float, int]] = {
    "hour": (120.0, 30),
    "day": (3600.0, 24),
    "week": (6 * 3600.0, 28),
}
"""The length of a period of each span, seconds, and their number. Messages are kept for a week."""

FRESH_S = 2.0
"""How long to show figures before reading them again, seconds, however many pages are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period (Unix seconds) and its figures."""

    since: float
    until: float
    figures: PeriodFigures


class Figures:
    """Reads the figures of a span.

    Turns end later than their messages arrive, so the figures of a past period still change. A period is read again at
    growing intervals. Each interval is at least as long as the period had been over at its last read.
    """

    def __init__(self, store: FigureStore, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._now = now
        self._shared: dict[Span, SharedResult[list[Period]]] = {
            span: SharedResult(FRESH_S, now) for span in _PERIODS
        }
        self._known: dict[Span, dict[float, tuple[float, PeriodFigures]]] = {}

    async def read(self, span: Span) -> tuple[list[Period], float]:
        """Return the periods of a span, and when they were read. Raises StoreError.

        The periods are in order; the last one has not ended.
        """
        return await self._shared[span].get(partial(self._read, span))

    async def count_waiting(self) -> int:
        """Return how many messages wait for a person's answer or approval now. Raises StoreError."""
        return await self._store.count_waiting()

    async def _read(self, span: Span) -> list[Period]:
        now = self._now()
        length, count = _PERIODS[span]
        last = now // length * length
        known, kept = self._known.get(span, {}), dict[float, tuple[float, PeriodFigures]]()
        for since in (last - number * length for number in reversed(range(count))):
            until = since + length
            read_at, figures = known.get(since, (0.0, PeriodFigures()))
            if now - read_at >= read_at - until:
                read_at, figures = now, await self._store.read(since, until)
            kept[since] = read_at, figures
        self._known[span] = kept
        return [
            Period(since=since, until=since + length, figures=figures)
            for since, (_, figures) in kept.items()
        ]


def percentile(samples: Iterable[tuple[Sequence[float], int]], percent: float) -> float | None:
    """Estimate a percentile of values from samples of them; None = there are no samples.

    Args:
        samples: For each group, some of its values and the number of all its values.
        percent: The share of values that are at most the result, 0 to 100.

    >>> percentile([([1.0, 2.0], 2), ([9.0], 100)], 50)
    9.0
    >>> percentile([([1.0, 2.0, 3.0, 4.0], 4)], 50), percentile([], 50)
    (2.0, None)
    """
    weighted = sorted(
        chain.from_iterable(
            ((value, count / len(values)) for value in values)
            for values, count in samples
            if values
        )
    )
    left = sum(weight for _, weight in weighted) * percent / 100
    for value, weight in weighted:
        if left <= weight:
            return value
        left -= weight
    return weighted[-1][0] if weighted else None
