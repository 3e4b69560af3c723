"""The audience of a broadcast: chats in which people have written and the bot may still answer. Pure."""

from collections.abc import Collection, Iterable
from typing import Literal, cast

from bus.access.policy import decide_access, first_message, pairing_id
from bus.config import ChannelPolicy
from bus.messages import ConversationKey, Sender, SenderKind
from bus.platform import Disposition
from store.chats import KnownChat

AudienceKind = Literal["private", "groups", "all"]
"""Private chats, groups, or both."""

PersonKey = tuple[str, str, str]
"""Channel, workspace, and the ID of a person or the pairing ID of a group."""


def select_chats(
    known: Iterable[KnownChat],
    policy: ChannelPolicy,
    audience: AudienceKind,
    *,
    approved: Collection[PersonKey],
) -> tuple[list[KnownChat], int]:
    """Return the chats of an audience that the access policy admits, and the number of chats that it refuses.

    Args:
        known: Chats of one channel.
        policy: The channel's current rules.
        audience: The kinds of chats.
        approved: People and groups with an approved pairing.
    """
    wanted = [
        chat for chat in known if audience == "all" or chat.is_private == (audience == "private")
    ]
    admitted = [chat for chat in wanted if _is_admitted(chat, policy, approved)]
    return admitted, len(wanted) - len(admitted)


def _is_admitted(chat: KnownChat, policy: ChannelPolicy, approved: Collection[PersonKey]) -> bool:
    """Return whether the bot would answer the last person who wrote there, if they addressed it."""
    key = ConversationKey(channel=chat.channel, workspace=chat.workspace, chat=chat.chat)
    sender = Sender(user_id=chat.user_id, kind=cast("SenderKind", chat.user_kind))
    message = first_message(key, sender, is_private=chat.is_private)
    is_approved = (chat.channel, chat.workspace, pairing_id(message)) in approved
    return decide_access(message, policy, is_approved=is_approved) is Disposition.ACCEPTED
