"""Clocks that tests set."""

import anyio


class ManualClock:
    """A clock that stands still.

    Attributes:
        now: What it shows, in seconds.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class OffsetClock:
    """A wall clock that goes on by itself.

    Attributes:
        ahead: Seconds by which the test has moved it.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return 1_000_000.0 + anyio.current_time() + self.ahead
