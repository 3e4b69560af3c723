"""Counters of HTTP requests, and the ID of the current request for log lines."""

from collections import Counter
from contextvars import ContextVar

from gateway.runtime.counters import DurationHistogram

RESPONSE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; close to the defaults of Prometheus client libraries."""

UNKNOWN_ROUTE = "(none)"
"""Label for paths without a route, so that clients cannot create time series."""

REQUEST_ID: ContextVar[str] = ContextVar("parley_request", default="")
"""The ID of the current request; empty outside of requests from the network."""


class RequestStats:
    """Counters of requests from the network since the process started.

    Attributes:
        requests: Number of requests by method, route and status.
        response_seconds: Time from a request to the start of its response. Streams continue afterwards.
        in_progress: Requests in progress, including open streams.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.response_seconds = DurationHistogram(RESPONSE_BUCKETS_S)
        self.in_progress = 0

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request whose response starts."""
        self.requests[(method, route, status)] += 1
        self.response_seconds.observe(seconds)
