"""Access policy: who may use the bot, and whether a message is meant for it. Pure."""

from collections.abc import Mapping

from bus.config import ChannelPolicy, DmPolicy
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition

AWAITING_APPROVAL = (Disposition.PAIRING, Disposition.GROUP_PAIRING)
"""Dispositions that an approved pairing turns into ACCEPTED."""


def decide_access(
    message: InboundMessage,
    policy: ChannelPolicy,
    *,
    is_approved: bool = False,
    is_known_reply: bool = False,
) -> Disposition:
    """Return ACCEPTED, or the reason why a message is not answered.

    Args:
        message: The message.
        policy: The channel's rules. `allowed_users` limits who may use the bot. Other people may use it only if the
            configuration explicitly says `open`.
        is_approved: Whether the pairing was approved: the sender's in a private chat, the group's in a group.
        is_known_reply: Whether it replies to a message of one of the bot's conversations.
    """
    if message.sender.is_bot and not policy.max_bot_messages:
        return Disposition.FROM_BOT
    if not message.prompt.strip() and not message.attachments:
        return Disposition.EMPTY
    if message.is_private:
        return _decide_private(message.sender, policy, is_approved=is_approved)
    if message.mentions_others and not message.is_addressed:
        return Disposition.NOT_ADDRESSED
    is_addressed = message.is_addressed or is_known_reply
    return _decide_group(message.sender, policy, is_addressed=is_addressed, is_approved=is_approved)


def effective_dm_policy(policy: ChannelPolicy) -> DmPolicy:
    """Return the rule for private chats: the configured one, else `allowlist` if users are listed.

    >>> effective_dm_policy(ChannelPolicy(allowed_users=["7"]))
    'allowlist'
    >>> effective_dm_policy(ChannelPolicy(allowed_users=["7"], dm_policy="pairing"))
    'pairing'
    >>> effective_dm_policy(ChannelPolicy())
    'pairing'
    """
    if policy.dm_policy is not None and "dm_policy" in policy.model_fields_set:
        return policy.dm_policy
    if policy.allowed_users:
        return "allowlist"
    return policy.dm_policy or "pairing"


def is_admin(sender: Sender, policy: ChannelPolicy) -> bool:
    """Return whether a sender is listed in `admin_users`."""
    return _is_listed(sender, policy.admin_users)


def is_channel_admin(policies: Mapping[str, ChannelPolicy], channel: str, sender: Sender) -> bool:
    """Return whether a sender is an administrator of a channel."""
    policy = policies.get(channel)
    return policy is not None and is_admin(sender, policy)


def group_pairing_id(chat: str) -> str:
    """Return the user ID under which a group's pairing is stored, because groups are approved like people.

    >>> group_pairing_id("-1001")
    'group:-1001'
    """
    return f"group:{chat}"


def pairing_id(message: InboundMessage) -> str:
    """Return the user ID of the pairing that admits a message: its sender's, or its group's."""
    return message.sender.user_id if message.is_private else group_pairing_id(message.key.chat)


def first_message(key: ConversationKey, sender: Sender, *, is_private: bool) -> InboundMessage:
    """Return a sample message from a person, to check against the policy."""
    return InboundMessage(
        event_id="",
        message_id="",
        key=key,
        reply_target=ReplyTarget(chat=key.chat),
        sender=sender,
        text="/start",
        is_private=is_private,
        is_addressed=True,
    )


def _decide_private(sender: Sender, policy: ChannelPolicy, *, is_approved: bool) -> Disposition:
    rule = effective_dm_policy(policy)
    if rule == "disabled":
        return Disposition.DISABLED
    if _is_denied_outsider(sender, policy):
        return Disposition.EXTERNAL
    if rule == "open" or _is_listed(sender, policy.allowed_users):
        return Disposition.ACCEPTED
    if rule == "pairing":
        return Disposition.ACCEPTED if is_approved else Disposition.PAIRING
    return Disposition.NOT_ALLOWED


def _decide_group(
    sender: Sender, policy: ChannelPolicy, *, is_addressed: bool, is_approved: bool
) -> Disposition:
    rule = policy.group_policy
    if rule == "disabled":
        return Disposition.DISABLED
    if rule != "open" and not is_addressed:
        return Disposition.NOT_ADDRESSED
    if _is_denied_outsider(sender, policy):
        return Disposition.EXTERNAL
    return _decide_group_member(sender, policy, is_approved=is_approved)


def _decide_group_member(
    sender: Sender, policy: ChannelPolicy, *, is_approved: bool
) -> Disposition:
    if policy.group_policy == "open" or _is_listed(sender, policy.allowed_users):
        return Disposition.ACCEPTED
    if policy.group_policy == "allowlist" or policy.allowed_users:
        return Disposition.NOT_ALLOWED
    if policy.group_policy == "pairing" and not is_approved:
        return Disposition.GROUP_PAIRING
    return Disposition.ACCEPTED


def _is_denied_outsider(sender: Sender, policy: ChannelPolicy) -> bool:
    """Return whether to refuse a sender from outside the organization, regardless of the other rules."""
    if sender.kind not in ("guest", "external") or policy.external_policy == "open":
        return False
    return policy.external_policy == "deny" or not _is_listed(sender, policy.allowed_users)


def _is_listed(sender: Sender, users: list[str]) -> bool:
    return sender.user_id in {str(user).strip() for user in users}
