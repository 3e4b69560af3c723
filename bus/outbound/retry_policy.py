"""Retry policy: decides whether to retry a failed delivery attempt, and when. Pure."""

from dataclasses import dataclass, field

from bus.errors import DeliveryError
from bus.retry import Backoff
from store.outbox import OutboxRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTimings:
    """Waits of the delivery worker, seconds.

    Attributes:
        backoff: Waits between attempts if the platform names no time.
        lookup_after_s: Wait before looking up a send with an unknown outcome, which may still be on its way.
        repeat_after_s: Wait before repeating such a send if it cannot be looked up or was not found. A platform may
            carry out a request seconds after the connection broke.
        give_up_after_s: How long after the first attempt to retry.
        credentials_after_s: How long after a row's creation to retry while the platform refuses the bot's credentials.
    """

    backoff: Backoff = field(default_factory=Backoff)
    lookup_after_s: float = 2.0
    repeat_after_s: float = 10.0
    give_up_after_s: float = 24 * 3600.0
    credentials_after_s: float = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """Retry after `wait_s`. `outcome_unknown`: the failed attempt may have succeeded."""

    wait_s: float
    outcome_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Do not retry. `uncertain`: one of the attempts may have succeeded."""

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
    """Decide what to do after a failed attempt.

    After an attempt with an unknown outcome, a row can end as uncertain but not as failed, even if later attempts are
    refused.

    Args:
        error: The adapter's error.
        row: The row. Its `attempts` include the failed one, but its `uncertain_attempts` do not.
        now: Unix seconds.
        repeatable: Whether the platform drops a repeated send, or the row changes an existing message.
        can_look_up: Whether the platform can find a sent message.
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
