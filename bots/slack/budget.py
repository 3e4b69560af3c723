"""How many calls of a kind an app may make in a workspace, all its messages together."""

from collections.abc import Callable

import anyio

MINUTE_S = 60.0


class Budget:
    """A token bucket: a burst at once, then so many calls a minute.

    Args:
        per_minute: Calls a minute in the long run.
        burst: Calls that may follow each other at once.
        clock: A monotonic clock, seconds.
    """

    def __init__(
        self, per_minute: float, burst: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._rate = per_minute / MINUTE_S
        self._burst = burst
        self._clock = clock or anyio.current_time
        self._left = burst
        self._at: float | None = None

    def take(self) -> float:
        """Take a call; return 0.0, or how long to wait before asking again if none is left, in seconds."""
        now = self._clock()
        passed_s = 0.0 if self._at is None else now - self._at
        self._left = min(self._burst, self._left + passed_s * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0

    def drain(self) -> None:
        """Leave nothing: Slack said that it was too much already."""
        self.take()
        self._left = 0.0
