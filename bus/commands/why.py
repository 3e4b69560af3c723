"""/why: for admins, why messages were not answered."""

from collections.abc import Mapping
from datetime import UTC, datetime

from bus.access import is_admin
from bus.commands.call import Call
from bus.config import ChannelPolicy
from bus.decisions import Decisions, Refusal
from bus.ports import Reason

ADMINS_ONLY = "Only admins may ask this."

MEANINGS: Mapping[Reason, str] = {
    Reason.DUPLICATE: "the platform sent it again",
    Reason.NOT_ADDRESSED: "in a group, and the bot was not meant",
    Reason.NOT_ALLOWED: "the sender is not among the allowed users",
    Reason.PAIRING: "the sender was asked to pair first",
    Reason.DISABLED: "this kind of chat is switched off",
    Reason.FROM_BOT: "sent by a bot",
    Reason.EMPTY: "nothing in it to answer",
    Reason.QUEUE_FULL: "too many messages of the conversation waited",
    Reason.RATE_LIMITED: "the sender wrote too much in a short time",
    Reason.UNSUPPORTED: "a kind of message that is not understood",
}
"""In words, for people. ACCEPTED is not asked about."""


class Why:
    """Answers about silence."""

    def __init__(self, *, policies: Mapping[str, ChannelPolicy], decisions: Decisions) -> None:
        self._policies = policies
        self._decisions = decisions

    async def why(self, call: Call) -> str:
        """Say what was not accepted in this chat lately, and on this channel since the start."""
        channel = call.row.key.channel
        policy = self._policies.get(channel)
        if policy is None or not is_admin(call.inbound, policy):
            return ADMINS_ONLY
        here = [_line(refusal) for refusal in self._decisions.last_refused(call.row.key)]
        counts = [
            f"• {count} × {_told(reason)}"
            for reason, count in self._decisions.refused(channel).items()
        ]
        return "\n".join(
            [
                "Not accepted in this chat, newest first:",
                *(here or ["• nothing"]),
                f"Not accepted on {channel} since the start:",
                *(counts or ["• nothing"]),
            ]
        )


def _line(refusal: Refusal) -> str:
    moment = datetime.fromtimestamp(refusal.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"• {moment}, from `{refusal.user_id}`: {_told(refusal.reason)}"


def _told(reason: Reason) -> str:
    return f"`{reason.value}` ({MEANINGS[reason]})"
