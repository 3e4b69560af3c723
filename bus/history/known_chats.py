"""The chats in which people wrote, as described by their newest messages. Pure."""

from collections.abc import Iterable

from pydantic import BaseModel, ValidationError

from bus.messages import Sender
from bus.settings.memory_scope import platform_id
from store.chats import KnownChat, NewestMessage


class _Target(BaseModel):
    user: str = ""


class _StoredChat(BaseModel):
    """The part of a stored message that describes its chat."""

    sender: Sender
    is_private: bool
    reply_target: _Target
    chat_title: str = ""
    original_chat: str = ""


def chats_of(newest: Iterable[NewestMessage]) -> list[KnownChat]:
    """Return the chats of conversations, given the newest message of each.

    In a chat with topics, the newest message in any of them counts.
    """
    found: dict[tuple[str, str, str], KnownChat] = {}
    for message in sorted(newest, key=lambda one: one.received_at):
        try:
            written = _StoredChat.model_validate_json(message.body)
        except ValidationError:
            continue  # The row is damaged, which is reported elsewhere.
        found[message.channel, message.workspace, message.chat] = KnownChat(
            channel=message.channel,
            workspace=message.workspace,
            chat=message.chat,
            is_private=written.is_private,
            user_id=written.sender.user_id,
            user_kind=written.sender.kind,
            recipient=written.reply_target.user,
            room=platform_id(
                message.channel, message.workspace, written.original_chat or message.chat
            ),
            title=written.sender.name if written.is_private else written.chat_title,
            received_at=message.received_at,
        )
    return list(found.values())
