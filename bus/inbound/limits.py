"""Stage: counts a message against its sender's rate limit; nodes tell each other what they accepted."""

import json
import logging
from itertools import count

from typing_extensions import override

from bus.access.rate_limits import COMMAND_LIMIT, SenderRateLimiter, rate_limit_for, sender_key
from bus.context import BusContext
from bus.inbound.pipeline import InboundContext, Stage

ACCEPTED = "limits.accepted"
"""Topic of signals between nodes: a person's message was accepted."""

log = logging.getLogger(__name__)


class LimitStage(Stage):
    """Counts messages; the commit stage refuses what exceeds the limit, and remembers that it did.

    A message that is refused is known to the journal, so that it is not run when the platform sends it again.

    Each node also counts messages that others accepted, some milliseconds later. If that signal is lost, only one
    node counts the message.
    """

    def __init__(self, bus: BusContext) -> None:
        self._bus = bus
        self._limiter = SenderRateLimiter()
        self._signals = bus.calls.database.signals
        self._numbers = count()
        bus.tasks.start_soon(self._listen)

    @override
    async def __call__(self, context: InboundContext) -> None:
        if context.joins:
            return
        message = context.message
        limit = COMMAND_LIMIT
        if context.command is None:
            limit = rate_limit_for(self._bus.config, self._bus.policies.get(message.key.channel))
        context.rate_limit = limit
        context.retry_after_s = self._limiter.acquire(
            message, limit, kind=context.kind, now=self._bus.now()
        )

    def release(self, context: InboundContext) -> None:
        """Undo the count of a message that was not accepted."""
        if context.rate_limit is not None:
            self._limiter.release(context.message, kind=context.kind)

    def announce(self, context: InboundContext) -> None:
        """Have the other nodes count a message that was accepted here."""
        limit, sender = context.rate_limit, sender_key(context.message, context.kind)
        sent_at = self._limiter.last_sent(sender)
        if limit is None or sent_at is None:
            return
        # The clocks of nodes may differ: how long ago it was counts. The number keeps equal signals apart.
        age_s = self._bus.now() - sent_at
        told = [self._bus.calls.node, next(self._numbers), sender, age_s, limit.per_seconds]
        self._bus.calls.announce(ACCEPTED, json.dumps(told))

    async def _listen(self) -> None:
        """Count what other nodes accept, until the database is closed."""
        with self._signals.subscribe(ACCEPTED) as payloads:
            async for payload in payloads:
                try:
                    node, _, sender, age_s, per_seconds = json.loads(payload or "[]")
                    channel, workspace, person, kind = sender
                except (ValueError, TypeError):
                    log.debug("what another node accepted is not counted: %.200r", payload)
                    continue
                if node != self._bus.calls.node:
                    self._limiter.record(
                        (channel, workspace, person, kind),
                        self._bus.now() - age_s,
                        per_seconds=per_seconds,
                    )
