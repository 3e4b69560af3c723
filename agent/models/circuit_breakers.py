"""Circuit breakers: stop calling models for a while if they keep failing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.config import CircuitBreakerConfig
from agent.models.failures import ModelFailure


@dataclass(slots=True)
class _Breaker:
    """The state of one model: consecutive failures, and when the breaker closes."""

    failures: int = 0
    open_until: float = 0.0


class BreakerCall:
    """One call of a model; the caller records its outcome."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.outcome: bool | None = None

    def succeeded(self) -> None:
        """Record that the model answered."""
        self.outcome = True

    def failed(self) -> None:
        """Record that the model's server failed."""
        self.outcome = False


class CircuitBreakers:
    """The circuit breakers of all models, by entry name; shared by all runs.

    A breaker opens after `failure_threshold` consecutive failures. When its pause ends, it lets one call through while
    others still wait. Success closes the breaker; failure starts another pause. If that call is canceled or records no
    outcome, the breaker lets the next call through immediately, so that a lost call cannot keep it open forever.

    Attributes:
        requests: Number of calls by model and outcome: `ok`, or the failure reason.
        retries: Number of retries by model.
        latest_failures: The failures of models whose latest call failed, by model.

    Args:
        config: Returns the current section.
        clock: Returns monotonic seconds.
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
        self.latest_failures: dict[str, ModelFailure] = {}

    def note_outcome(self, name: str, failure: ModelFailure | None) -> None:
        """Count a request to a model, and remember its failure; None = it succeeded."""
        self.requests[(name, failure.reason if failure else "ok")] += 1
        if failure is None:
            self.latest_failures.pop(name, None)
        else:
            self.latest_failures[name] = failure

    def is_open(self, name: str) -> bool:
        """Return whether a model's breaker is open."""
        breaker, threshold = self._breakers.get(name), self._config().failure_threshold
        if breaker is None or not 0 < threshold <= breaker.failures:
            return False
        return self._clock() < breaker.open_until

    def consecutive_failures(self, name: str) -> int:
        """Return how many of a model's latest calls failed in a row."""
        breaker = self._breakers.get(name)
        return breaker.failures if breaker else 0

    @contextmanager
    def call(self, name: str) -> Iterator[BreakerCall]:
        """Yield one call. Its `allowed` says whether to make it."""
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
