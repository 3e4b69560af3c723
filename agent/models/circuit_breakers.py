"""Circuit breakers: stop calling models that keep failing, for a while."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.config import CircuitBreakerConfig


@dataclass(slots=True)
class _Breaker:
    """One model: calls that failed in a row, and until when it is left alone."""

    failures: int = 0
    open_until: float = 0.0


class BreakerCall:
    """One call of a model; whoever makes it says how it went."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.outcome: bool | None = None

    def succeeded(self) -> None:
        """Note that the model answered."""
        self.outcome = True

    def failed(self) -> None:
        """Note that the model's server failed."""
        self.outcome = False


class CircuitBreakers:
    """The state of all models, by the names of their entries; shared by all runs.

    After so many failed calls in a row nothing is sent for a while. Then one call tries, while the others still wait:
    an answer ends the pause, a failure begins another. A try that is cancelled, or says nothing, lets the next call
    try at once; and since a try is only a later end of the pause, none that is lost can keep a model shut for ever.

    Attributes:
        requests: How many went to each model with which outcome: `ok`, or why they failed.
        retries: How many were made again after a failure.

    Args:
        config: Returns the section that holds now.
        clock: Seconds, never going back.
    """

    def __init__(
        self,
        config: Callable[[], CircuitBreakerConfig],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._clock = clock
        self._breakers: dict[str, _Breaker] = {}
        self.requests: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[str] = Counter()

    def is_open(self, name: str) -> bool:
        """Return whether a model is left alone now."""
        breaker, threshold = self._breakers.get(name), self._config().failure_threshold
        if breaker is None or not 0 < threshold <= breaker.failures:
            return False
        return self._clock() < breaker.open_until

    @contextmanager
    def call(self, name: str) -> Iterator[BreakerCall]:
        """Yield the trial of one call; `allowed` says whether it may be made."""
        config, breaker = self._config(), self._breakers.setdefault(name, _Breaker())
        threshold = config.failure_threshold
        tripped = 0 < threshold <= breaker.failures
        trial = BreakerCall(allowed=not tripped or self._clock() >= breaker.open_until)
        if tripped and trial.allowed:
            breaker.open_until = self._clock() + config.recovery_timeout_sec
        try:
            yield trial
        finally:
            if trial.allowed:
                self._record(breaker, trial, tripped=tripped)

    def _record(self, breaker: _Breaker, trial: BreakerCall, *, tripped: bool) -> None:
        config = self._config()
        if trial.outcome is True:
            breaker.failures = 0
        elif trial.outcome is False:
            breaker.failures += 1
            if breaker.failures >= config.failure_threshold:
                breaker.open_until = self._clock() + config.recovery_timeout_sec
        elif tripped:
            breaker.open_until = self._clock()
