"""What would admit the sender of a refused message, and whether the message can be answered now. Pure."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bus.access.policy import decide_access, pairing_id
from bus.config import ChannelPolicy
from bus.messages import InboundMessage, decode_inbound
from bus.platform import Disposition
from store.refused_messages import RefusedRow

ACCESS_REASONS = frozenset(
    {
        Disposition.PAIRING,
        Disposition.GROUP_PAIRING,
        Disposition.NOT_ALLOWED,
        Disposition.EXTERNAL,
        Disposition.DISABLED,
    }
)
"""Dispositions that concern who may use the bot, and where."""

LIMIT_REASONS = frozenset({Disposition.RATE_LIMITED, Disposition.QUEUE_FULL})
"""Dispositions of messages that came at a bad time: too many at once, or too fast."""

MAX_TEXT_CHARS = 4000
"""Maximum length of the text of a refused message, characters. Messages with longer texts cannot be answered later."""

RemedyKind = Literal["person", "chat", "setting", "admitted", "none"]

_SETTINGS: Mapping[str, str] = {
    Disposition.NOT_ALLOWED: "channels.{channel}.allowed_users",
    Disposition.EXTERNAL: "channels.{channel}.external_policy",
    Disposition.FROM_BOT: "channels.{channel}.max_bot_messages",
    Disposition.NOT_ADDRESSED: "channels.{channel}.group_policy",
    Disposition.QUEUE_FULL: "channels.max_queue",
    Disposition.RATE_LIMITED: "channels.rate_limit.messages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What would make the bot answer a refused message.

    Attributes:
        kind: `person` or `chat` = approving it; `setting` = only a change of the configuration; `admitted` = nothing,
            because the bot would answer now; `none` = there is nothing to answer.
        setting: The key of the configuration that decides; "" = none.
        can_answer: Whether the message can be answered now, because its sender is admitted and it has been kept.
    """

    kind: RemedyKind
    setting: str = ""
    can_answer: bool = False


Approved = Container[tuple[str, str, str]]
"""Channel, workspace, and the ID of a person or the pairing ID of a group."""


def find_remedy(
    row: RefusedRow, policies: Mapping[str, ChannelPolicy], approved: Approved
) -> Remedy:
    """Return what would make the bot answer a refused message, given the current policies and approvals."""
    message, policy = refused_message(row), policies.get(row.channel)
    if message is None:
        return _setting(row.reason, row)
    if policy is None:
        return Remedy(kind="setting", setting=f"channels.{row.channel}.enabled")
    is_approved = (row.channel, row.workspace, pairing_id(message)) in approved
    disposition = decide_access(message, policy, is_known_reply=True, is_approved=is_approved)
    is_kept = 0 < len(row.text) < MAX_TEXT_CHARS or (not row.text and bool(message.attachments))
    can_answer = is_kept and disposition is Disposition.ACCEPTED
    if row.reason in LIMIT_REASONS:
        return replace(_setting(row.reason, row), can_answer=can_answer)
    kinds = {
        Disposition.ACCEPTED: Remedy(kind="admitted", can_answer=can_answer),
        Disposition.PAIRING: Remedy(kind="person"),
        Disposition.GROUP_PAIRING: Remedy(kind="chat"),
    }
    return kinds.get(disposition) or _setting(disposition, row)


def refused_message(row: RefusedRow) -> InboundMessage | None:
    """Return a message that was refused because of its sender, chat or a limit; None for others and damaged rows."""
    try:
        found = decode_inbound(row.body) if row.body else None
    except ValueError:
        return None
    return found and replace(found, text=row.text)


def _setting(reason: str, row: RefusedRow) -> Remedy:
    if reason == Disposition.DISABLED:
        name = "dm_policy" if row.is_private else "group_policy"
        return Remedy(kind="setting", setting=f"channels.{row.channel}.{name}")
    if reason not in _SETTINGS:
        return Remedy(kind="none")
    return Remedy(kind="setting", setting=_SETTINGS[reason].format(channel=row.channel))
