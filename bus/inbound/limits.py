"""Stage: counts a message against its sender's rate limit."""

from typing_extensions import override

from bus.access.rate_limits import COMMAND_LIMIT, SenderRateLimiter, rate_limit_for
from bus.context import BusContext
from bus.inbound.pipeline import InboundContext, Stage


class LimitStage(Stage):
    """Counts messages; the commit stage refuses what exceeds the limit, and remembers that it did.

    A message that is refused is known to the journal, so that it is not run when the platform sends it again.
    """

    def __init__(self, bus: BusContext, limiter: SenderRateLimiter) -> None:
        self._bus = bus
        self._limiter = limiter

    @override
    async def __call__(self, context: InboundContext) -> None:
        message = context.message
        limit = COMMAND_LIMIT
        if context.command is None:
            limit = rate_limit_for(self._bus.config, self._bus.policies.get(message.key.channel))
        context.rate_limit = limit
        context.retry_after_s = self._limiter.acquire(
            message, limit, kind=context.kind, now=self._bus.now()
        )
