"""A process's resources, sampled over time, and their growth. The arithmetic is pure."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000

WARM_UP_SHARE = 0.5
"""The share of samples at the start that are ignored because caches and pools are filling."""

MAX_MB_AN_HOUR = 1.0

MAX_MORE = {
    "descriptors": 8,
    "threads": 4,
    "tasks": 8,
    "temporary files": 3,
    "open deliveries": 20,
    "WAL, MB": 4.0,
}
"""How far the median of the last third may exceed that of the middle third. Faults cause peaks, but a leak raises all
samples.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The resources in use at one moment. `at_s`: seconds since the start. `turns`: the number of finished turns."""

    at_s: float
    turns: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Growth:
    """A straight line through the samples: its slope and the slope's standard error, both per hour or per turns."""

    slope: float
    error: float

    @property
    def exceeds(self) -> bool:
        """Whether the slope exceeds the bar by more than two standard errors."""
        return self.slope - 2 * self.error > MAX_MB_AN_HOUR


def after_warm_up(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples that count."""
    return samples[int(len(samples) * WARM_UP_SHARE) :]


def growth_of(samples: Sequence[Sample], name: str) -> Growth:
    """Return how a value grows with time, by linear regression.

    >>> samples = [Sample(at_s=60.0 * n, turns=n, values={"x": 5.0 + n / 60}) for n in range(10)]
    >>> growth = growth_of(samples, "x")
    >>> round(growth.slope, 6), round(growth.error, 6)
    (1.0, 0.0)
    """
    hours = [sample.at_s / 3600 for sample in samples]
    values = [sample.values[name] for sample in samples]
    count = len(samples)
    if count < 3:
        return Growth(0.0, math.inf)
    middle, mean = sum(hours) / count, sum(values) / count
    spread = sum((hour - middle) ** 2 for hour in hours)
    pairs = zip(hours, values, strict=True)
    slope = sum((hour - middle) * (value - mean) for hour, value in pairs) / spread
    rest = sum(
        (value - mean - slope * (hour - middle)) ** 2
        for hour, value in zip(hours, values, strict=True)
    )
    return Growth(slope, math.sqrt(rest / (count - 2) / spread))


def per_thousand_turns(samples: Sequence[Sample], growth: Growth) -> Growth:
    """Convert a growth per hour and its error to 1,000 turns, at the rate of these samples."""
    hours = (samples[-1].at_s - samples[0].at_s) / 3600
    turns = samples[-1].turns - samples[0].turns
    thousands = hours / turns * 1000 if turns else math.nan
    return Growth(growth.slope * thousands, growth.error * thousands)


def problems(samples: Sequence[Sample]) -> list[str]:
    """Return the values that grow and must not."""
    counted = after_warm_up(samples)
    found = []
    rss = growth_of(counted, "RSS, MB")
    if rss.exceeds:
        turns = per_thousand_turns(counted, rss)
        found.append(
            f"RSS grows by {rss.slope:.2f} ± {rss.error:.2f} MB an hour"
            f" ({turns.slope:.3f} ± {turns.error:.3f} MB per 1,000 turns)"
        )
    third = max(1, len(counted) // 3)
    for name, allowed in MAX_MORE.items():
        before, last = (
            statistics.median(sample.values[name] for sample in part)
            for part in (counted[-2 * third : -third] or counted, counted[-third:])
        )
        if last > before + allowed:
            found.append(f"{name}: {before:g}, then {last:g}")
    return found


def take_sample(
    pid: int, home: Path, log: Path, metrics: str, *, at_s: float, turns: int
) -> Sample:
    """Return the resources of a process. Raises OSError if it has ended."""
    process = Path("/proc") / str(pid)
    status = dict(
        line.split(":", maxsplit=1) for line in (process / "status").read_text().splitlines()
    )
    values = {
        "RSS, MB": int(status["VmRSS"].split()[0]) * 1024 / MB,
        "anonymous, MB": int(status["RssAnon"].split()[0]) * 1024 / MB,
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "tasks": read_gauge(metrics, "parley_event_loop_tasks"),
        "open deliveries": read_gauge(metrics, 'parley_outbox_rows{state="pending"}'),
        "WAL, MB": sum(file.stat().st_size for file in home.glob("*.db-wal")) / MB,
        "databases, MB": sum(file.stat().st_size for file in home.glob("*.db")) / MB,
        "log, MB": log.stat().st_size / MB,
        "temporary files": sum(1 for _ in (home.parent / "tmp").rglob("*")),
    }
    return Sample(at_s=at_s, turns=turns, values=values)


def read_gauge(metrics: str, name: str) -> float:
    """Return the value of a metric. The name includes its labels, if any.

    >>> read_gauge("parley_up 1.0\\nparley_event_loop_tasks 25.0\\n", "parley_event_loop_tasks")
    25.0
    """
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, f"no metric {name}"
    return float(found[1])
