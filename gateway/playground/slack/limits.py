"""Slack's rate limits: a tier for each method, and one message a second in each channel."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_S = 60.0

TIERS: Mapping[str, int] = {"t1": 1, "t2": 20, "t3": 50, "t4": 100}
"""Calls a minute of one app in one workspace (docs.slack.dev/apis/web-api/rate-limits). Slack permits a few more."""

POSTS = 60
"""Messages a minute in one channel: one a second, with short bursts."""

GRACE = 1.2
"""How much more Slack permits than it documents, as a factor."""


class SlackRateLimits:
    """Counts calls, and returns how long to wait if there were too many.

    Attributes:
        on: Whether calls are counted.
        tiers: Calls a minute by tier.
    """

    def __init__(self) -> None:
        self.on = True
        self.tiers = dict(TIERS)
        self._calls: dict[str, deque[float]] = {}

    def wait_s(self, method: str, spec: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
        """Count a call. Return how long its caller must wait, seconds; 0 = it is permitted."""
        if not self.on:
            return 0
        name, allowed = method, self.tiers.get(str(spec.get("rate_limits")), 0)
        if method == "chat.postMessage":
            name, allowed = f"{method} {arguments.get('channel')}", POSTS
        if not allowed:
            return 0
        now = time.monotonic()
        calls = self._calls.setdefault(name, deque())
        while calls and now - calls[0] > WINDOW_S:
            calls.popleft()
        if len(calls) >= allowed * GRACE:
            return int(WINDOW_S - (now - calls[0])) + 1
        calls.append(now)
        return 0
