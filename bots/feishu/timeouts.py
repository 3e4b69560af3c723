"""How long the Feishu adapter waits for what. All in seconds; tests pass shorter ones."""

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuTimeouts:
    """The adapter's clocks.

    Attributes:
        call_s: Bound of one API call.
        upload_s: Bound of one upload (30 MB on a slow line).
        connect_s: Bound of fetching the connection's address, and of the handshake.
        ack_s: An event is answered within this, well or badly. The platform waits 3 s.
        press_s: A pressed button is answered within this: the platform shows an error after 3 s.
        ping_s: Between two pings, until the platform says otherwise (its default is 120 s).
        close_s: Bound of saying goodbye, and of waiting for calls that are under way then.
        parts_s: How long the parts of a split event are kept.
        backoff_min_s: First wait after an unreachable platform; doubles up to `backoff_max_s`.
        refused_s: Wait after the platform refused the app's credentials.
        check_s: In mode webhook, between two looks whether the platform still knows the app.
    """

    call_s: float = 20.0
    upload_s: float = 120.0
    connect_s: float = 15.0
    ack_s: float = 2.5
    press_s: float = 2.0
    ping_s: float = 120.0
    close_s: float = 1.0
    parts_s: float = 10.0
    backoff_min_s: float = 1.0
    backoff_max_s: float = 60.0
    refused_s: float = 60.0
    check_s: float = 60.0


class Backoff:
    """Doubling waits with jitter: many bots must not come back in the same instant."""

    def __init__(self, timings: FeishuTimeouts, jitter: Callable[[], float] | None = None) -> None:
        self._timings = timings
        self._jitter = jitter or SystemRandom().random
        self._failures = 0

    def reset(self) -> None:
        """Begin at the shortest wait again: things work."""
        self._failures = 0

    def next_s(self) -> float:
        """Return how long to wait after one more failure: between half and all of the doubled wait."""
        timings = self._timings
        doubled = timings.backoff_min_s * 2.0 ** min(self._failures, 16)
        self._failures += 1
        return min(timings.backoff_max_s, doubled) * (0.5 + self._jitter() / 2)
