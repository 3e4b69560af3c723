"""Rate limits per sender: how many messages a person may send in a period, counted across all nodes."""

import json
import logging
import math
from bisect import bisect_right, insort
from itertools import count

from bus.bounded import BoundedDict
from bus.config import BusConfig, ChannelPolicy, RateLimit
from bus.context import BusContext
from bus.inbound.pipeline import InboundContext
from bus.locales import Messages
from bus.messages import InboundMessage

log = logging.getLogger(__name__)

COMMAND_LIMIT = RateLimit(messages=600, per_seconds=60.0)
"""Rate limit for commands. Commands start no runs, and no one types this many."""

MAX_SENDERS = 10_000
"""Maximum number of senders to keep counts for. If there are more, the least recent are dropped."""

COUNTED = "rate_limits.counted"
"""Topic of signals between nodes: a person's message was accepted and counts."""

SenderKey = tuple[str, str, str, str]
"""Channel, workspace, person, and kind: chat or command."""


def sender_key(message: InboundMessage, kind: str) -> SenderKey:
    """Return the sender for whom a message counts."""
    return message.key.channel, message.key.workspace, message.sender.user_id, kind


class SenderRateLimiter:
    """Counts the accepted messages of each sender.

    Args:
        max_senders: Maximum number of senders to keep counts for.
    """

    def __init__(self, max_senders: int = MAX_SENDERS) -> None:
        self._sent = BoundedDict[SenderKey, list[float]](max_senders)

    def acquire(self, message: InboundMessage, limit: RateLimit, *, kind: str, now: float) -> float:
        """Count a message. Return 0 or, if the limit is exceeded, the seconds until it may be sent.

        If the platform reports when the message was sent, that time counts, because after an outage the messages of
        several hours arrive at once.

        Args:
            message: The message.
            limit: Maximum number of messages in a period. 0 messages = unlimited.
            kind: Chat or command. Each is counted separately.
            now: Unix seconds.
        """
        if limit.messages == 0:
            return 0.0
        sent = self._sent_by(sender_key(message, kind))
        if sent and sent[-1] > now:
            sent.clear()  # The clock was set back.
        moment = now if message.sent_at is None else min(now, message.sent_at)
        moment = max(moment, sent[-1]) if sent else moment
        del sent[: bisect_right(sent, moment - limit.per_seconds)]
        if len(sent) < limit.messages:
            sent.append(moment)
            return 0.0
        return sent[0] + limit.per_seconds - moment

    def record(self, sender: SenderKey, moment: float, *, per_seconds: float) -> None:
        """Count a message that another node accepted, sent at `moment` by this node's clock, Unix seconds."""
        sent = self._sent_by(sender)
        insort(sent, moment)
        del sent[: bisect_right(sent, sent[-1] - per_seconds)]

    def last_sent(self, sender: SenderKey) -> float | None:
        """Return when a sender's newest counted message was sent, Unix seconds. None = unknown."""
        sent = self._sent.get(sender)
        return sent[-1] if sent else None

    def release(self, message: InboundMessage, *, kind: str) -> None:
        """Undo `acquire` for a message that was not accepted."""
        sent = self._sent_by(sender_key(message, kind))
        if sent:
            sent.pop()

    def _sent_by(self, person: SenderKey) -> list[float]:
        """Return when a sender's messages were accepted, Unix seconds, in order.

        A deque would take at least 600 bytes.
        """
        sent = self._sent[person] = self._sent.get(person, [])
        return sent


class SharedRateLimiter:
    """Counts the messages of each sender against the limit of their channel.

    Each node also counts messages that other nodes accepted, some milliseconds later. If a signal is lost, only one
    node counts the message. Further parts of a gesture are not counted.
    """

    def __init__(self, bus: BusContext) -> None:
        self._config, self._policies, self._now = bus.config, bus.policies, bus.now
        self._limiter = SenderRateLimiter()
        self._calls = bus.calls
        self._numbers = count()
        bus.tasks.start_soon(self._listen)

    def acquire(self, context: InboundContext) -> float:
        """Count a message. Return 0 or, if its sender exceeds the limit, the seconds until it may be sent again."""
        if context.is_uncounted:
            return 0.0
        limit = self._limit_for(context)
        return self._limiter.acquire(context.message, limit, kind=context.kind, now=self._now())

    def release(self, context: InboundContext) -> None:
        """Undo `acquire` for a message that was not accepted."""
        if not context.is_uncounted:
            self._limiter.release(context.message, kind=context.kind)

    def announce(self, context: InboundContext) -> None:
        """Signal the other nodes to count a message that was accepted here."""
        sender = sender_key(context.message, context.kind)
        sent_at = self._limiter.last_sent(sender)
        if context.is_uncounted or sent_at is None:
            return
        # The clocks of nodes may differ, so the signal contains the message's age. The number makes each signal unique.
        age_s, per_seconds = self._now() - sent_at, self._limit_for(context).per_seconds
        told = [self._calls.node, next(self._numbers), sender, age_s, per_seconds]
        self._calls.announce(COUNTED, json.dumps(told))

    def _limit_for(self, context: InboundContext) -> RateLimit:
        if context.command is not None:
            return COMMAND_LIMIT
        return rate_limit_for(self._config, self._policies.get(context.message.key.channel))

    async def _listen(self) -> None:
        """Count messages that other nodes accept, until the database is closed."""
        with self._calls.database.signals.subscribe(COUNTED) as payloads:
            async for payload in payloads:
                try:
                    node, _, sender, age_s, per_seconds = json.loads(payload or "[]")
                    channel, workspace, person, kind = sender
                except (ValueError, TypeError):
                    log.debug("what another node accepted is not counted: %.200r", payload)
                    continue
                if node != self._calls.node:
                    self._limiter.record(
                        (channel, workspace, person, kind),
                        self._now() - age_s,
                        per_seconds=per_seconds,
                    )


def rate_limit_for(config: BusConfig, policy: ChannelPolicy | None) -> RateLimit:
    """Return the limit of chat messages on a channel.

    >>> from bus.config import RateOverride
    >>> rate_limit_for(BusConfig(), ChannelPolicy(rate_limit=RateOverride(messages=5)))
    RateLimit(messages=5, per_seconds=60.0)
    """
    if policy is None or not policy.rate_limit.model_fields_set:
        return config.rate_limit
    return config.rate_limit.model_copy(update=policy.rate_limit.model_dump(exclude_none=True))


def format_wait(wait_s: float, texts: Messages) -> str:
    """Return a wait in words, rounded up: seconds below two minutes, minutes below two hours, then hours.

    >>> [format_wait(wait_s, Messages()) for wait_s in (0.2, 59.1, 3592, 7200, 86_399)]
    ['1 second', '60 seconds', '60 minutes', '2 hours', '24 hours']
    """
    seconds = max(1, math.ceil(wait_s))
    if seconds == 1:
        return texts.word_second
    if seconds < 2 * 60:
        return texts.word_seconds.format(count=seconds)
    if seconds < 2 * 3600:
        return texts.word_minutes.format(count=math.ceil(seconds / 60))
    return texts.word_hours.format(count=math.ceil(seconds / 3600))
