"""/why: tells administrators why messages were not answered."""

from datetime import UTC, datetime

from bus.access.intake_stats import RefusedMessage
from bus.access.policy import is_admin
from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.locales import Messages
from bus.platform import Disposition


class WhyCommand:
    """Explains silence."""

    def __init__(self, bus: BusContext) -> None:
        self._policies = bus.policies
        self._stats = bus.stats

    async def why(self, context: CommandContext) -> str:
        """List the last refusals of this chat, and count those of the channel since the start."""
        channel = context.row.key.channel
        policy = self._policies.get(channel)
        if policy is None or not is_admin(context.inbound.sender, policy):
            return context.texts.why_admins_only
        texts = context.texts
        here = [_line(refusal, texts) for refusal in self._stats.recent_refusals(context.row.key)]
        counts = [
            f"• {count} × {_described(reason, texts)}"
            for reason, count in self._stats.refusals_by_reason(channel).items()
        ]
        nothing = [f"• {texts.why_nothing}"]
        return "\n".join(
            [
                texts.why_here,
                *(here or nothing),
                texts.why_channel.format(channel=channel),
                *(counts or nothing),
            ]
        )


def _line(refusal: RefusedMessage, texts: Messages) -> str:
    moment = datetime.fromtimestamp(refusal.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    description = _described(refusal.disposition, texts)
    return "• " + texts.why_line.format(
        moment=moment, user=f"`{refusal.user_id}`", reason=description
    )


def _described(reason: Disposition, texts: Messages) -> str:
    return texts.why_reason.format(code=f"`{reason.value}`", meaning=texts.why(reason.value))
