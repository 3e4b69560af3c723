"""Who may talk to the bot, and when it is meant. Pure: what the store knows is passed in."""

from bus.config import ChannelPolicy, DmPolicy
from bus.messages import InboundMessage
from bus.platform import Disposition


def decide_access(
    inbound: InboundMessage, policy: ChannelPolicy, *, paired: bool, known: bool
) -> Disposition:
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


def effective_dm_policy(policy: ChannelPolicy) -> DmPolicy:
    """Return the rule for private chats: the one that was written, else the list of users, else the default.

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


def is_admin(inbound: InboundMessage, policy: ChannelPolicy) -> bool:
    """Return whether the sender may ask what only admins may know."""
    return inbound.sender.user_id in {str(user).strip() for user in policy.admin_users}


def _unfit(inbound: InboundMessage) -> Disposition | None:
    if inbound.sender.is_bot:
        return Disposition.FROM_BOT
    if not inbound.text.strip() and not inbound.attachments:
        return Disposition.EMPTY
    return None


def _in_private(inbound: InboundMessage, policy: ChannelPolicy, *, paired: bool) -> Disposition:
    rule = effective_dm_policy(policy)
    if rule == "disabled":
        return Disposition.DISABLED
    if rule == "open" or _is_listed(inbound, policy):
        return Disposition.ACCEPTED
    if rule == "pairing":
        return Disposition.ACCEPTED if paired else Disposition.PAIRING
    return Disposition.NOT_ALLOWED


def _in_group(inbound: InboundMessage, policy: ChannelPolicy, *, meant: bool) -> Disposition:
    rule = policy.group_policy
    if rule == "disabled":
        return Disposition.DISABLED
    if rule == "open":
        return Disposition.ACCEPTED
    if not meant:
        return Disposition.NOT_ADDRESSED
    if (rule == "allowlist" or policy.allowed_users) and not _is_listed(inbound, policy):
        return Disposition.NOT_ALLOWED
    return Disposition.ACCEPTED


def _is_listed(inbound: InboundMessage, policy: ChannelPolicy) -> bool:
    return inbound.sender.user_id in {str(user).strip() for user in policy.allowed_users}
