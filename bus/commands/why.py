"""/why: tells administrators why messages were not answered."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bus.access.intake_stats import REFUSALS_PER_CHAT, RefusedMessage
from bus.access.policy import is_admin
from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.locales import Messages
from bus.messages import ConversationKey
from bus.platform import Disposition
from bus.voice.stats import PER_CHAT, Recording

REFUSALS, RECORDINGS = "bus.refusals", "bus.recordings"
ASK_S = 2.0
"""Time limit for asking another node, seconds."""


class WhyCommand:
    """Explains why messages were not answered.

    Asks all nodes, because each one knows only messages that arrived there.
    """

    def __init__(self, bus: BusContext) -> None:
        self._policies = bus.policies
        self._stats = bus.stats
        self._calls = bus.calls
        self._recordings = bus.speech_stats
        bus.calls.serve(REFUSALS, self._list_here)
        bus.calls.serve(RECORDINGS, self._recordings_here)

    async def why(self, context: CommandContext) -> str:
        """List the latest refusals of this chat, and count the channel's refusals since the start."""
        channel = context.row.key.channel
        policy = self._policies.get(channel)
        if policy is None or not is_admin(context.inbound.sender, policy):
            return context.texts.why_admins_only
        texts = context.texts
        refusals, reasons = await self._list(context.row.key)
        here = [_line(refusal, texts) for refusal in refusals]
        speech = await self._speech(context.row.key, texts)
        counts = [f"• {count} × {_described(reason, texts)}" for reason, count in reasons.items()]
        nothing = [f"• {texts.why_nothing}"]
        return "\n".join(
            [
                texts.why_here,
                *(here or nothing),
                texts.why_channel.format(channel=channel),
                *(counts or nothing),
                *([texts.why_speech, *speech] if speech else ()),
            ]
        )

    async def _speech(self, key: ConversationKey, texts: Messages) -> list[str]:
        """Return a line for each of all nodes' latest recordings in a chat, newest first."""
        body = json.dumps([key.channel, key.workspace, key.chat])
        others = await self._calls.call_others(RECORDINGS, body, within_s=ASK_S)
        found = [
            Recording(at=at, user_id=user, outcome=outcome, source=source, detail=detail)
            for answer in (await self._recordings_here(body), *filter(None, others.values()))
            for at, user, outcome, source, detail in json.loads(answer)
        ]
        found.sort(key=lambda recording: recording.at, reverse=True)
        return [_speech_line(recording, texts) for recording in found[:PER_CHAT]]

    async def _recordings_here(self, body: str) -> str:
        """Return this process's latest recordings in a chat."""
        channel, workspace, chat = json.loads(body)
        key = ConversationKey(channel=channel, workspace=workspace, chat=chat)
        return json.dumps(
            [
                (one.at, one.user_id, one.outcome, one.source, one.detail)
                for one in self._recordings.recent(key)
            ]
        )

    async def _list(
        self, key: ConversationKey
    ) -> tuple[Sequence[RefusedMessage], Mapping[Disposition, int]]:
        """Return all nodes' latest refusals in a chat, newest first, and their refusals in its channel by reason."""
        body = json.dumps([key.channel, key.workspace, key.chat])
        others = await self._calls.call_others(REFUSALS, body, within_s=ASK_S)
        refusals: list[RefusedMessage] = []
        reasons = Counter[Disposition]()
        for answer in (await self._list_here(body), *filter(None, others.values())):
            listed, counts = json.loads(answer)
            refusals += [
                RefusedMessage(at, Disposition(why), user, origin)
                for at, why, user, origin in listed
            ]
            reasons.update({Disposition(why): count for why, count in counts.items()})
        refusals.sort(key=lambda refusal: refusal.at, reverse=True)
        return refusals[:REFUSALS_PER_CHAT], dict(reasons.most_common())

    async def _list_here(self, body: str) -> str:
        """Return this process's refusals: the latest ones in a chat, and the numbers in its channel."""
        channel, workspace, chat = json.loads(body)
        key = ConversationKey(channel=channel, workspace=workspace, chat=chat)
        listed = [
            (one.at, one.disposition, one.user_id, one.origin)
            for one in self._stats.recent_refusals(key)
        ]
        return json.dumps([listed, self._stats.refusals_by_reason(channel)])


def _line(refusal: RefusedMessage, texts: Messages) -> str:
    user = f"`{refusal.user_id}`"
    if refusal.origin:
        user = texts.why_origin.format(origin=f"`{refusal.origin}`", user=user)
    return _event_line(refusal.at, user, _described(refusal.disposition, texts), texts)


def _speech_line(recording: Recording, texts: Messages) -> str:
    meaning = recording.source or f"`{recording.detail.replace('`', ' ')}`"
    description = texts.why_reason.format(code=f"`{recording.outcome}`", meaning=meaning)
    return _event_line(recording.at, f"`{recording.user_id}`", description, texts)


def _event_line(at: float, user: str, description: str, texts: Messages) -> str:
    moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return "• " + texts.why_line.format(moment=moment, user=user, reason=description)


def _described(reason: Disposition, texts: Messages) -> str:
    return texts.why_reason.format(code=f"`{reason.value}`", meaning=texts.why(reason.value))
