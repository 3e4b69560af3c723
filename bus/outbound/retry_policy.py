"""What follows a failed delivery attempt: try again later, or give up. Pure."""

from dataclasses import dataclass, field

from bus.errors import DeliveryError
from bus.retry import Backoff
from store.outbox import OutboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTimings:
    """Waits of the delivery worker, seconds.

    Attributes:
        backoff: Between attempts, where the platform names no time.
        lookup_after_s: Before a send of unknown outcome is looked up: it may still be on its way.
        repeat_after_s: Before such a send is repeated, where nothing can be looked up or nothing was found: a platform
            may carry out a request seconds after its connection broke.
        give_up_after_s: After the first attempt, no further retry.
        credentials_after_s: While the bot's credentials are refused, the same after the row was created.
    """

    backoff: Backoff = field(default_factory=Backoff)
    lookup_after_s: float = 2.0
    repeat_after_s: float = 10.0
    give_up_after_s: float = 24 * 3600.0
    credentials_after_s: float = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """Try again after `wait_s`. `outcome_unknown`: the failed attempt may have been successful."""

    wait_s: float
    outcome_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Do not try again. `uncertain`: one of the attempts may have been successful."""

    uncertain: bool = False


RetryDecision = RetryLater | GiveUp


def decide_retry(
    error: DeliveryError,
    row: OutboxRow,
    *,
    now: float,
    repeatable: bool,
    can_look_up: bool,
    timings: RetryTimings,
) -> RetryDecision:
    """Decide what follows a failed attempt.

    An attempt of unknown outcome keeps its doubt through later refusals: the row never ends as plainly failed.

    Args:
        error: The adapter's error.
        row: The row; its `attempts` include the failed one, its `uncertain_attempts` do not.
        now: Unix seconds.
        repeatable: The platform drops a repeated send, or the row changes a message that exists.
        can_look_up: The platform can tell whether the message arrived.
        timings: The waits.
    """
    doubts = row.uncertain_attempts + error.ambiguous
    age_s = now - row.first_sent_at if row.first_sent_at is not None else 0.0
    is_late = age_s > timings.give_up_after_s
    if error.credentials_refused:
        is_late = now - row.created_at > timings.credentials_after_s
    if is_late or not (error.retryable or error.ambiguous):
        return GiveUp(uncertain=doubts > 0)
    if error.ambiguous and not repeatable:
        if doubts > 1 and not can_look_up:
            return GiveUp(uncertain=True)
        least_s = timings.lookup_after_s if can_look_up else timings.repeat_after_s
        wait_s = max(error.retry_after_s or 0.0, least_s)
    elif error.retry_after_s is not None:
        wait_s = error.retry_after_s
    else:
        wait_s = timings.backoff.wait_s(row.attempts)
    return RetryLater(wait_s=wait_s, outcome_unknown=error.ambiguous)
