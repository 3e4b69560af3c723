"""/why: shows which schedules and hooks sent messages, and shows administrators why messages were not answered."""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from bus.access.policy import is_admin
from bus.causes import describe_cause, schedule_id_of
from bus.commands.context import CommandContext
from bus.context import BusContext
from bus.locales import Messages
from bus.messages import ConversationKey, decode_inbound
from bus.platform import Disposition
from bus.voice.stats import PER_CHAT, Recording
from store.outbox import NEWEST

RECORDINGS = "bus.recordings"
ASK_S = 2.0
"""Time limit for asking another node, seconds."""


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A message without an answer. `at` is in Unix seconds, `origin` as on `InboundMessage`."""

    at: float
    reason: Disposition
    user_id: str
    origin: str


class WhyCommand:
    """Explains messages from their rows. For recordings, it asks all nodes."""

    def __init__(self, bus: BusContext) -> None:
        self._policies = bus.policies
        self._stats, self._stores = bus.stats, bus.stores
        self._calls = bus.calls
        self._recordings = bus.speech_stats
        bus.calls.serve(RECORDINGS, self._recordings_here)

    async def why(self, context: CommandContext) -> str:
        """List the messages that schedules and hooks sent to this chat.

        For administrators, also list the chat's latest messages without an answer, and count those of the channel.
        """
        texts = context.texts
        caused = await self._caused(context.row.key, texts)
        caused = [texts.why_caused, *caused] if caused else []
        channel = context.row.key.channel
        policy = self._policies.get(channel)
        if policy is None or not is_admin(context.inbound.sender, policy):
            return "\n".join(caused) or texts.why_admins_only
        await self._stats.store_refusals()  # Another node stores its messages within a second.
        here = [_line(message, texts) for message in await self._list(context.row.key)]
        speech = await self._speech(context.row.key, texts)
        reasons = await self._count(channel)
        counts = [f"• {count} × {_described(reason, texts)}" for reason, count in reasons.items()]
        nothing = [f"• {texts.why_nothing}"]
        return "\n".join(
            [
                *([texts.status_taken_over] if context.row.taken_over_by is not None else ()),
                texts.why_here,
                *(here or nothing),
                texts.why_channel.format(channel=channel),
                *(counts or nothing),
                *([texts.why_speech, *speech] if speech else ()),
                *caused,
            ]
        )

    async def _caused(self, key: ConversationKey, texts: Messages) -> list[str]:
        """Return a line for each of the latest messages that a schedule or a hook sent to a chat, newest first."""
        lines = []
        for row in await self._stores.inbox.list_with_origin(key, limit=PER_CHAT):
            with suppress(ValueError):  # A damaged row does not say what sent it.
                message = decode_inbound(row.body)
                schedule = await self._stores.schedules.find(schedule_id_of(message))
                cause = describe_cause(message, schedule, texts)
                lines.append(f"• {_moment(row.received_at)} · {cause}")
        return lines

    async def _speech(self, key: ConversationKey, texts: Messages) -> list[str]:
        """Return a line for each of the latest recordings in a chat, from all nodes, newest first."""
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

    async def _list(self, key: ConversationKey) -> list[_Unanswered]:
        """Return the latest messages of a chat that got no answer, newest first."""
        refused = await self._stores.refused.list_recent(
            limit=PER_CHAT,
            before=NEWEST,
            channel=key.channel,
            workspace=key.workspace,
            chat=key.chat,
        )
        found = [
            _Unanswered(row.received_at, Disposition(row.reason), row.user_id, row.origin)
            for row in refused
        ]
        for row in await self._stores.inbox.list_silent(key, limit=PER_CHAT):
            with suppress(ValueError):  # A damaged row says nothing about its sender.
                said = decode_inbound(row.body)
                found.append(
                    _Unanswered(
                        row.received_at, Disposition.DECLINED, said.sender.user_id, said.origin
                    )
                )
        return sorted(found, key=lambda one: one.at, reverse=True)[:PER_CHAT]

    async def _count(self, channel: str) -> Mapping[Disposition, int]:
        """Return the number of a channel's kept messages without an answer by reason, most frequent first."""
        stores = self._stores
        by_reason = await stores.refused.count_by_reason(channel)
        counts = Counter({Disposition(reason): count for reason, count in by_reason.items()})
        counts[Disposition.DECLINED] += await stores.inbox.count_silent(channel)
        return dict((+counts).most_common())


def _line(message: _Unanswered, texts: Messages) -> str:
    user = f"`{message.user_id}`"
    if message.origin:
        user = texts.why_origin.format(origin=f"`{message.origin}`", user=user)
    return _event_line(message.at, user, _described(message.reason, texts), texts)


def _speech_line(recording: Recording, texts: Messages) -> str:
    meaning = recording.source or f"`{recording.detail.replace('`', ' ')}`"
    description = texts.why_reason.format(code=f"`{recording.outcome}`", meaning=meaning)
    return _event_line(recording.at, f"`{recording.user_id}`", description, texts)


def _event_line(at: float, user: str, description: str, texts: Messages) -> str:
    return "• " + texts.why_line.format(moment=_moment(at), user=user, reason=description)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _described(reason: Disposition, texts: Messages) -> str:
    return texts.why_reason.format(code=f"`{reason.value}`", meaning=texts.why(reason.value))
