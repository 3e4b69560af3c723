"""Runs a target on numbered inputs, and stops one that takes too long."""

import gc
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

HANG_S = 5.0
"""Maximum CPU seconds for one input, a hundred times the slowest."""

MAX_GROWTH_MB = 200
"""How much the process may grow while a target runs, after caches are warm, MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser and its inputs.

    Attributes:
        weight: Its share of a long run, relative to the others. Slow parsers get less.
        run: Creates an input and passes it to the parser. Returns a word for the outcome ("accepted", "refused").
        Raises only errors that callers of the parser do not expect.
    """

    name: str
    run: Callable[[Random], str]
    weight: float = 1.0


@dataclass(slots=True)
class FuzzResult:
    """The results of one target.

    Attributes:
        slowest_s: CPU time of the slowest input.
        growth_mb: How much the process grew at its peak.
    """

    target: str
    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    growth_mb: float = 0.0


class TooSlowError(Exception):
    """An input took too much CPU time."""


def fuzz(
    target: Target, count: int, *, seed: int, first: int = 0, hang_s: float = HANG_S
) -> FuzzResult:
    """Run inputs `first` to `first + count - 1`, each for at most `hang_s` seconds of CPU time.

    Raises:
        AssertionError: An input failed (the message says how to repeat it), files stayed open, or memory grew.
    """
    result = FuzzResult(target.name)
    descriptors, before = _open_files(), _peak_mb()
    with _cpu_alarm(hang_s):
        for number in range(first, first + count):
            started = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, hang_s)
            try:
                outcome = target.run(Random(f"{seed}/{target.name}/{number}"))  # noqa: S311 - no secrets
            except Exception as error:
                raise AssertionError(
                    f"{type(error).__name__}: {error}\nTo repeat: python -m tests.lab.fuzz --target {target.name}"
                    f" --seed {seed} --first {number} --count 1"
                ) from error
            result.slowest_s = max(result.slowest_s, time.process_time() - started)
            result.outcomes[outcome] += 1
            result.count += 1
    gc.collect()
    result.growth_mb = _peak_mb() - before
    assert _open_files() <= descriptors, f"{target.name}: files were left open"
    assert result.growth_mb < MAX_GROWTH_MB, f"{target.name}: grew by {result.growth_mb:.0f} MB"
    return result


@contextmanager
def _cpu_alarm(hang_s: float) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {hang_s} s of CPU time")

    previous = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
