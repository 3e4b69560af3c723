"""Who may talk to the bot, and when it is meant. Pure: what the store knows is passed in."""

from bus.config import ChannelPolicy, DmPolicy
from bus.messages import InboundMessage
from bus.platform import Reason


def decide(inbound: InboundMessage, policy: ChannelPolicy, *, paired: bool, known: bool) -> Reason:
    """Return ACCEPTED, PAIRING (ask them to be let in), or why this message is not answered.

    Args:
        inbound: The message.
        policy: The channel's rules. `allowed_users` limits who may talk; only an `open` that somebody wrote
            into the configuration lets others in beside it.
        paired: Whether the sender was let in by a pairing code; counts in private chats only.
        known: Whether the message answers one of a conversation in which the bot takes part.
    """
    unfit = _unfit(inbound)
    if unfit is not None:
        return unfit
    if inbound.private:
        return _in_private(inbound, policy, paired=paired)
    return _in_group(inbound, policy, meant=inbound.addressed or known)


def dm_policy_of(policy: ChannelPolicy) -> DmPolicy:
    """Return the rule for private chats: the one that was written, else the list of users, else the default.

    >>> dm_policy_of(ChannelPolicy(allowed_users=["7"]))
    'allowlist'
    >>> dm_policy_of(ChannelPolicy(allowed_users=["7"], dm_policy="pairing"))
    'pairing'
    >>> dm_policy_of(ChannelPolicy())
    'pairing'
    """
    if policy.dm_policy is not None and "dm_policy" in policy.model_fields_set:
        return policy.dm_policy
    if policy.allowed_users:
        return "allowlist"
    return policy.dm_policy or "pairing"


def is_admin(inbound: InboundMessage, policy: ChannelPolicy) -> bool:
    """Return whether the sender may ask what only admins may know."""
    return inbound.sender.user_id in {str(user).strip() for user in policy.admin_users}


def _unfit(inbound: InboundMessage) -> Reason | None:
    if inbound.sender.is_bot:
        return Reason.FROM_BOT
    if not inbound.text.strip() and not inbound.attachments:
        return Reason.EMPTY
    return None


def _in_private(inbound: InboundMessage, policy: ChannelPolicy, *, paired: bool) -> Reason:
    rule = dm_policy_of(policy)
    if rule == "disabled":
        return Reason.DISABLED
    if rule == "open" or _is_listed(inbound, policy):
        return Reason.ACCEPTED
    if rule == "pairing":
        return Reason.ACCEPTED if paired else Reason.PAIRING
    return Reason.NOT_ALLOWED


def _in_group(inbound: InboundMessage, policy: ChannelPolicy, *, meant: bool) -> Reason:
    rule = policy.group_policy
    if rule == "disabled":
        return Reason.DISABLED
    if rule == "open":
        return Reason.ACCEPTED
    if not meant:
        return Reason.NOT_ADDRESSED
    if (rule == "allowlist" or policy.allowed_users) and not _is_listed(inbound, policy):
        return Reason.NOT_ALLOWED
    return Reason.ACCEPTED


def _is_listed(inbound: InboundMessage, policy: ChannelPolicy) -> bool:
    return inbound.sender.user_id in {str(user).strip() for user in policy.allowed_users}
