"""The rate that an account may keep, learned from the platform's 429s."""

from collections import deque
from collections.abc import Callable
from typing import Final

STEP: Final = 0.1
"""Part of the first rate by which the rate rises in a second."""

STEP_S: Final = 1.0
"""Least time between two rises, seconds."""

CEILING_SHARE: Final = 0.9
"""Part of what held when the platform refused, up to which the rate rises again."""

REMEMBERED_S: Final = 300.0
"""How long a refusal limits the rate; afterwards the rate is tried out anew."""


class LearnedRate:
    """Rises step by step while calls have to wait for it, and halves when the platform refuses.

    After a refusal it rises to nine tenths of what the platform took in the second before, and stays there for five
    minutes: few calls are refused, although the platform does not tell its limit.

    Args:
        first: Calls a second to begin with.
        least: What it never falls below: waits that the platform names are waited out in any case.
        most: What it never exceeds.
        clock: Monotonic clock, seconds.
    """

    def __init__(
        self, *, first: float, least: float, most: float, clock: Callable[[], float]
    ) -> None:
        self.per_s = first
        self.most = most
        self._least = least
        self._step = first * STEP
        self._clock = clock
        self._ceiling = most
        self._refused_at: float | None = None
        self._changed_at = -STEP_S
        self._accepted: deque[float] = deque(maxlen=int(most))

    def record_accepted(self) -> None:
        """Count a call that the platform took."""
        self._accepted.append(self._clock())

    def rise(self) -> bool:
        """Rise by one step, because a call has to wait; return whether the rate changed."""
        now = self._clock()
        if self._refused_at is not None and now - self._refused_at >= REMEMBERED_S:
            self._ceiling, self._refused_at = self.most, None
        if now - self._changed_at < STEP_S or self.per_s >= self._ceiling:
            return False
        self.per_s, self._changed_at = min(self.per_s + self._step, self._ceiling), now
        return True

    def halve(self) -> None:
        """Fall, because the platform refused a call for the account's sake."""
        now = self._clock()
        held = sum(1 for at in self._accepted if now - at < 1.0)
        self._ceiling = max(self._least, held * CEILING_SHARE)
        self._refused_at = self._changed_at = now
        self.per_s = max(self._least, min(self.per_s, held) / 2)
