"""Stage: counts a message against its sender's rate limit."""

from collections.abc import Mapping

from typing_extensions import override

from bus.access.rate_limits import COMMAND_LIMIT, SenderRateLimiter, rate_limit_for
from bus.config import BusConfig, ChannelPolicy
from bus.inbound.pipeline import InboundContext, Stage
from bus.platform import Clock


class LimitStage(Stage):
    """Counts messages; the commit stage refuses what exceeds the limit, and remembers that it did.

    A message that is refused is known to the journal, so that it is not run when the platform sends it again.
    """

    def __init__(
        self,
        *,
        config: BusConfig,
        policies: Mapping[str, ChannelPolicy],
        limiter: SenderRateLimiter,
        now: Clock,
    ) -> None:
        self._config = config
        self._policies = policies
        self._limiter = limiter
        self._now = now

    @override
    async def __call__(self, context: InboundContext) -> None:
        message = context.message
        limit = COMMAND_LIMIT
        if context.command is None:
            limit = rate_limit_for(self._config, self._policies.get(message.key.channel))
        context.rate_limit = limit
        context.retry_after_s = self._limiter.acquire(
            message, limit, kind=context.kind, now=self._now()
        )
