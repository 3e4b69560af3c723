"""Feishu events other than messages: recalled messages, opened chats, menu clicks. Pure."""

from dataclasses import dataclass
from typing import Final

from bots.feishu.json_node import JsonNode
from bus.messages import ConversationKey, MessageDeletion, SenderKind

_RECALLED: Final = "im.message.recalled_v1"
_ADDED: Final = "im.chat.member.bot.added_v1"
_ENTERED: Final = "im.chat.access_event.bot_p2p_chat_entered_v1"
_MENU: Final = "application.bot.menu_v6"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEntered:
    """Somebody opened the chat with the bot, or added the bot to a group.

    Attributes:
        event_id: The platform's id of the event, stable over redeliveries.
        person: Who did it.
        private: Whether it is the chat with the bot.
        is_first: Whether nothing was said there yet, as far as the platform tells.
    """

    event_id: str
    chat: str
    person: str
    private: bool
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuClick:
    """Somebody clicked an entry of the bot's menu; in which chat is not told: in that with the bot.

    Attributes:
        entry: The entry's `event_key`.
    """

    event_id: str
    workspace: str
    person: str
    entry: str


def sender_kind(home: str, tenant: str) -> SenderKind:
    """Return what kind of person acts: somebody of another tenant is external. Guests of a tenant are not told apart.

    >>> sender_kind("t1", "t1"), sender_kind("t1", "t2"), sender_kind("t1", "")
    ('member', 'external', 'unknown')
    """
    if not (home and tenant):
        return "unknown"
    return "member" if home == tenant else "external"


def parse_other_event(
    kind: str, header: JsonNode, event: JsonNode, channel: str
) -> MessageDeletion | ChatEntered | MenuClick | None:
    """Return what an event tells; None if it is nothing to act on."""
    event_id = header.text("event_id")
    if kind == _RECALLED:
        return _recalled(event_id, header, event, channel)
    if kind in (_ADDED, _ENTERED):
        return _arrival(event_id, event, private=kind == _ENTERED)
    if kind == _MENU:
        return _menu(event_id, header, event)
    return None


def _recalled(
    event_id: str, header: JsonNode, event: JsonNode, channel: str
) -> MessageDeletion | None:
    message, chat = event.text("message_id"), event.text("chat_id")
    if not (message and chat):
        return None
    key = ConversationKey(channel=channel, workspace=header.text("tenant_key"), chat=chat, topic="")
    return MessageDeletion(event_id=event_id or f"recalled:{message}", key=key, message_id=message)


def _arrival(event_id: str, event: JsonNode, *, private: bool) -> ChatEntered | None:
    chat, person = event.text("chat_id"), event["operator_id"].text("open_id")
    if not chat:
        return None
    return ChatEntered(
        event_id=event_id or chat,
        chat=chat,
        person=person,
        private=private,
        is_first=not event.text("last_message_id"),
    )


def _menu(event_id: str, header: JsonNode, event: JsonNode) -> MenuClick | None:
    operator = event["operator"]
    person = operator["operator_id"].text("open_id") or operator.text("open_id")
    entry = event.text("event_key").strip().removeprefix("/")
    if not (event_id and person and entry):
        return None
    return MenuClick(
        event_id=event_id, workspace=header.text("tenant_key"), person=person, entry=entry
    )
