"""How much one person may send: so many messages in so many seconds, counted by person."""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.messages import InboundMessage

COMMAND_LIMIT = RateLimit(messages=600, per_seconds=60.0)
"""Commands start no runs; nobody types so many."""

MAX_SENDERS = 10_000
"""People who are counted; of more, those who were quiet for longest are forgotten."""


@dataclass(slots=True)
class _Sent:
    """When a person's messages were taken, and when they were last told that it were too many (Unix seconds)."""

    at: deque[float] = field(default_factory=deque)
    told: float | None = None


class SenderRateLimiter:
    """Counts the accepted messages of each person.

    Args:
        people: How many are counted at most.
    """

    def __init__(self, people: int = MAX_SENDERS) -> None:
        self._people = people
        self._sent: OrderedDict[tuple[str, ...], _Sent] = OrderedDict()

    def acquire(self, inbound: InboundMessage, limit: RateLimit, *, lane: str, now: float) -> float:
        """Count a message; return 0, or where there were too many before, after how many seconds it may be sent.

        What counts is when it was sent, as far as the platform tells: after an outage the messages of hours
        come at once.

        Args:
            inbound: The message.
            limit: How many are taken; 0 messages = any number.
            lane: What is counted by itself: chat or commands.
            now: Unix seconds.
        """
        if limit.messages == 0:
            return 0.0
        sent = self._of(inbound, lane)
        if sent.at and sent.at[-1] > now:
            sent.at.clear()  # the clock was turned back
        moment = now if inbound.sent_at is None else min(now, inbound.sent_at)
        moment = max(moment, sent.at[-1]) if sent.at else moment
        while sent.at and moment - sent.at[0] >= limit.per_seconds:
            sent.at.popleft()
        if len(sent.at) < limit.messages:
            sent.at.append(moment)
            return 0.0
        return sent.at[0] + limit.per_seconds - moment

    def release(self, inbound: InboundMessage, *, lane: str) -> None:
        """Count a message less that was taken but not accepted after all."""
        sent = self._of(inbound, lane)
        if sent.at:
            sent.at.pop()

    def should_notify(
        self, inbound: InboundMessage, limit: RateLimit, *, lane: str, now: float
    ) -> bool:
        """Return whether a person who sent too much has to be told so: once in the limit's time."""
        sent = self._of(inbound, lane)
        if sent.told is not None and 0 <= now - sent.told < limit.per_seconds:
            return False
        sent.told = now
        return True

    def _of(self, inbound: InboundMessage, lane: str) -> _Sent:
        key = inbound.key
        person = (key.channel, key.workspace, inbound.sender.user_id, lane)
        sent = self._sent.setdefault(person, _Sent())
        self._sent.move_to_end(person)
        if len(self._sent) > self._people:
            self._sent.popitem(last=False)
        return sent


def rate_limit_for(config: BusConfig, policy: ChannelPolicy | None) -> RateLimit:
    """Return how much chat one person may send on a channel.

    >>> from bus.config import RateOverride
    >>> rate_limit_for(BusConfig(), ChannelPolicy(rate_limit=RateOverride(messages=5)))
    RateLimit(messages=5, per_seconds=60.0)
    """
    if policy is None:
        return config.rate_limit
    return config.rate_limit.model_copy(update=policy.rate_limit.model_dump(exclude_none=True))


def whole_seconds(wait_s: float) -> int:
    """Return how many seconds to name, at least one.

    >>> whole_seconds(0.2), whole_seconds(59.1)
    (1, 60)
    """
    return max(1, math.ceil(wait_s))
