"""When a failed attempt may be repeated. Pure."""

import random
from dataclasses import dataclass

from bus.errors import DeliveryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from `first_s` up to `cap_s`, less a random part of at most `jitter`.

    >>> calm = Backoff(first_s=0.5, cap_s=15.0, jitter=0.0)
    >>> [calm.wait_s(attempt) for attempt in (1, 2, 3, 4, 5, 6, 7)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    """

    first_s: float = 0.5
    cap_s: float = 15.0
    jitter: float = 0.1

    def wait_s(self, attempt: int) -> float:
        """Return the seconds to wait after the given failed attempt (1 = the first)."""
        whole = min(self.cap_s, self.first_s * 2.0 ** min(max(attempt, 1) - 1, 30))
        return whole * (1 - self.jitter * random.random())  # noqa: S311 - spreads load, guards nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """Try again after `wait_s` seconds."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The message may be out: settle that before anything is repeated."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Trying again cannot help."""


RetryDecision = RetryLater | OutcomeUnknown | GiveUp


def decide_retry(
    error: DeliveryError, *, attempt: int, age_s: float, backoff: Backoff, limit_s: float
) -> RetryDecision:
    """Decide what follows a failed delivery attempt.

    Args:
        error: What the adapter raised.
        attempt: Attempts made so far, this one included.
        age_s: How long the delivery has been owed.
        backoff: The waits where the platform names none.
        limit_s: After how long a retryable delivery is given up.

    >>> decide_retry(DeliveryError("429", retryable=True, retry_after_s=7.0), attempt=1, age_s=0.0,
    ...       backoff=Backoff(), limit_s=60.0)
    RetryLater(wait_s=7.0)
    >>> decide_retry(DeliveryError("gone"), attempt=1, age_s=0.0, backoff=Backoff(), limit_s=60.0)
    GiveUp()
    """
    if error.ambiguous:
        return OutcomeUnknown()
    if not error.retryable or age_s > limit_s:
        return GiveUp()
    if error.retry_after_s is not None:
        return RetryLater(wait_s=error.retry_after_s)
    return RetryLater(wait_s=backoff.wait_s(attempt))
