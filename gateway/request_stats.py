"""What came in over HTTP, counted; and the request that is being served, for log lines."""

from collections import Counter
from contextvars import ContextVar

from gateway.runtime.counters import DurationHistogram

RESPONSE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; Prometheus clients use about these for requests."""

UNKNOWN_ROUTE = "(none)"
"""In place of a path that no route has: strangers must not be able to make up series."""

REQUEST_ID: ContextVar[str] = ContextVar("parley_request", default="")
"""The id of the request that is being served; empty outside of requests from the network."""


class RequestStats:
    """The requests from the network since the start.

    Attributes:
        requests: How many, by method, route and status.
        answering: From the request to the head of its answer; streams go on after that.
        open: How many are being answered now, streams among them.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.answering = DurationHistogram(RESPONSE_BUCKETS_S)
        self.open = 0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request whose answer begins."""
        self.requests[(method, route, status)] += 1
        self.answering.observe(seconds)
