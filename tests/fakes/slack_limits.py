"""How often Slack lets an app call: a tier for each method, and a message a second in each channel."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_S = 60.0

TIERS: Mapping[str, int] = {"t1": 1, "t2": 20, "t3": 50, "t4": 100}
"""Calls a minute, of one app in one workspace (docs.slack.dev/apis/web-api/rate-limits); Slack grants a few more."""

POSTS = 60
"""Messages a minute in one channel: one a second, and some at once."""

GRACE = 1.2
"""How much more than it says Slack grants."""


class SlackRateLimits:
    """Counts calls; tells how long to wait when there were too many.

    Attributes:
        on: Whether calls are counted at all.
        tiers: Calls a minute by tier.
    """

    def __init__(self) -> None:
        self.on = True
        self.tiers = dict(TIERS)
        self._calls: dict[str, deque[float]] = {}

    def wait_s(self, method: str, spec: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
        """Count a call; return how many seconds its caller has to wait, 0 = it may be made."""
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
