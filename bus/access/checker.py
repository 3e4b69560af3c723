"""Checks messages against their channel's access policy and the approved pairings."""

import secrets
from collections.abc import Mapping
from dataclasses import replace

from bus.access.policy import (
    AWAITING_APPROVAL,
    decide_access,
    first_message,
    group_pairing_id,
    is_admin,
    is_channel_admin,
    pairing_id,
)
from bus.config import ChannelPolicy
from bus.messages import (
    ConversationKey,
    InboundMessage,
    OutboundText,
    Sender,
    encode_outbound,
)
from bus.platform import Clock, Disposition
from store.pairings import Pairing, PairingStore

PAIRING_CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
PAIRING_CODE_LENGTH = 8
"""32 characters, without 0, O, 1 and I.

A code has 40 bits and is valid for an hour. A channel has at most 100 open codes.
"""

MAX_TEXT_CHARS = 200
"""How much of a message with a request for access to keep until its approval, characters."""


class AccessChecker:
    """Decides who may use the bot.

    Args:
        policies: By channel.
        pairings: Approved people and groups. Read only if the policy requires approval.
    """

    def __init__(
        self, *, policies: Mapping[str, ChannelPolicy], pairings: PairingStore, now: Clock
    ) -> None:
        self._policies = policies
        self._pairings = pairings
        self._now = now

    async def check(self, message: InboundMessage, *, is_known_reply: bool = False) -> Disposition:
        """Return ACCEPTED, or the reason why a message is not answered. Raises StoreError."""
        policy = self._policies.get(message.key.channel)
        if policy is None:
            return Disposition.DISABLED
        disposition = decide_access(message, policy, is_known_reply=is_known_reply)
        if disposition in AWAITING_APPROVAL and await self._is_approved(message):
            return decide_access(message, policy, is_known_reply=is_known_reply, is_approved=True)
        return disposition

    def is_admin(self, channel: str, sender: Sender) -> bool:
        """Return whether a sender is an administrator of the channel."""
        return is_channel_admin(self._policies, channel, sender)

    async def request_pairing(self, message: InboundMessage) -> Pairing | None:
        """Return the open request of a sender or group; None if the channel has too many. Raises StoreError.

        `message` is localized, for the notice of the approval.
        """
        return await self._pairings.request(self._pairing(message.key, message))

    async def admit(self, message: InboundMessage) -> Pairing:
        """Approve the sender of a refused message, or its group, as if they had requested access. Raises StoreError.

        `message` is localized.
        """
        return await self._pairings.admit(self._pairing(message.key, message), now=self._now())

    async def approve_group_of(self, key: ConversationKey, added_by: Sender) -> bool:
        """Approve a group if the person who added the bot may use it.

        Return whether it was approved. Raises StoreError.
        """
        policy = self._policies.get(key.channel)
        if policy is None or policy.group_policy != "pairing":
            return False
        private = first_message(key, added_by, is_private=True)
        may_use = is_admin(added_by, policy) or await self.check(private) is Disposition.ACCEPTED
        if may_use:
            await self._pairings.admit(self._pairing(key, None), now=self._now())
        return may_use

    async def _is_approved(self, message: InboundMessage) -> bool:
        key = message.key
        return await self._pairings.is_paired(key.channel, key.workspace, pairing_id(message))

    def _pairing(self, key: ConversationKey, message: InboundMessage | None) -> Pairing:
        """Return a new request of the sender in a private chat, or of the group."""
        person = message.sender if message is not None and message.is_private else None
        title = message.chat_title if message is not None else ""
        return Pairing(
            code=new_pairing_code(),
            channel=key.channel,
            workspace=key.workspace,
            user_id=person.user_id if person is not None else group_pairing_id(key.chat),
            user_name=person.name if person is not None else title,
            chat=key.chat,
            topic=key.topic,
            text=message.text[:MAX_TEXT_CHARS] if message is not None else "",
            notice=_approval_notice(message) if message is not None else "",
            created_at=self._now(),
        )


def _approval_notice(message: InboundMessage) -> str:
    """Return the encoded message about an approval, in the language and the chat of the request."""
    target = replace(message.reply_target, response_url="")
    texts = target.texts
    text = texts.pairing_approved if message.is_private else texts.group_pairing_approved
    body = OutboundText(channel=message.key.channel, reply_target=target, markdown=text)
    return encode_outbound(body)


def new_pairing_code() -> str:
    """Return a random code that an administrator uses to approve a person or a group."""
    return "".join(secrets.choice(PAIRING_CODE_LETTERS) for _ in range(PAIRING_CODE_LENGTH))
