"""Calls that have to be made later: what needs one is begun only if Slack will allow it soon."""

from collections.abc import Callable, Hashable
from typing import Final

import anyio

from bots.common.call_limits import RateLimiter

REACTIONS_ADDED_A_MINUTE: Final = 50
"""`reactions.add`: tier 3 (docs.slack.dev/apis/web-api/rate-limits)."""

REACTIONS_REMOVED_A_MINUTE: Final = 20
"""`reactions.remove`: tier 2."""

RESERVED_S: Final = 3600.0
"""How long a call stays reserved; by then it was made, or given up."""

_MINUTE_S: Final = 60.0


class ReservedCalls:
    """The calls of one method in one workspace, of which some are reserved.

    What waits to be ended is never more than may be ended in a minute, however busy a workspace is and however many
    nodes share its limits.

    Args:
        per_minute: How many calls Slack allows.
        clock: A monotonic clock, seconds.

    Attributes:
        made: The calls that were made.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or anyio.current_time
        self._per_minute = per_minute
        self._reserved: dict[Hashable, float] = {}
        self.made = RateLimiter({_MINUTE_S: per_minute}, clock=self._clock)

    @property
    def has_room(self) -> bool:
        """Whether one more call can be made, or reserved, besides those that are reserved."""
        oldest = self._clock() - RESERVED_S
        self._reserved = {key: at for key, at in self._reserved.items() if at > oldest}
        used = self.made.count(_MINUTE_S) + len(self._reserved)
        return used < self._per_minute and not self.made.is_paused

    def reserve(self, key: Hashable) -> None:
        """Reserve a call for something that begins; ask `has_room` before."""
        self._reserved[key] = self._clock()

    def has_reserved(self, key: Hashable) -> bool:
        """Return whether a call is reserved for this."""
        return key in self._reserved

    def release(self, key: Hashable) -> None:
        """Give a reserved call back: it was made, or is not needed."""
        self._reserved.pop(key, None)

    def try_acquire(self, key: Hashable) -> float:
        """Count a call and return 0.0 if it may be made now; otherwise return how long to wait, in seconds."""
        if key not in self._reserved and not self.has_room:
            return self.made.delay_s() or _MINUTE_S
        return self.made.try_acquire()


class ReactionBudget:
    """The reactions of one app in one workspace: one that shows work takes the room of its removal while it is there.

    Args:
        clock: A monotonic clock, seconds.

    Attributes:
        additions: Calls of `reactions.add`.
        removals: Calls of `reactions.remove`.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.additions = RateLimiter(
            {_MINUTE_S: REACTIONS_ADDED_A_MINUTE}, clock=clock or anyio.current_time
        )
        self.removals = ReservedCalls(REACTIONS_REMOVED_A_MINUTE, clock)

    def reserve(self, key: Hashable) -> bool:
        """Return whether a working reaction may be added: then that is counted, and its removal reserved."""
        if not self.removals.has_room or self.additions.try_acquire():
            return False
        self.removals.reserve(key)
        return True
