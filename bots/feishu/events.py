"""Parses Feishu events other than messages: recalled messages, opened chats, added bots, menu clicks. Pure."""

from dataclasses import dataclass

from bots.feishu.json_node import JsonNode
from bus.messages import ConversationKey, MessageDeletion, Sender, SenderKind

_RECALLED = "im.message.recalled_v1"
_ADDED = "im.chat.member.bot.added_v1"
_ENTERED = "im.chat.access_event.bot_p2p_chat_entered_v1"
_MENU = "application.bot.menu_v6"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEntered:
    """A person opened the chat with the bot.

    Attributes:
        person: The person; "" = unknown.
        is_first: Whether the chat has no messages yet, according to the platform.
    """

    chat: str
    person: str
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BotAdded:
    """A person added the bot to a group.

    Attributes:
        event_id: The platform's ID of the event, stable across redeliveries.
        key: The group.
        added_by: The person; the ID is "" if unknown.
    """

    event_id: str
    key: ConversationKey
    added_by: Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuClick:
    """A person clicked an entry of the bot's menu. The event does not name the chat, which is the private one.

    Attributes:
        entry: The entry's `event_key`.
    """

    event_id: str
    workspace: str
    person: str
    entry: str


def sender_kind(home: str, tenant: str) -> SenderKind:
    """Return the kind of a person. People from other tenants are external. Guests are not distinguished from members.

    >>> sender_kind("t1", "t1"), sender_kind("t1", "t2"), sender_kind("t1", "")
    ('member', 'external', 'unknown')
    """
    if not (home and tenant):
        return "unknown"
    return "member" if home == tenant else "external"


def parse_other_event(
    kind: str, header: JsonNode, event: JsonNode, channel: str
) -> MessageDeletion | ChatEntered | BotAdded | MenuClick | None:
    """Parse an event. Return None if it needs no action."""
    event_id = header.text("event_id")
    if kind == _RECALLED:
        return _recalled(event_id, header, event, channel)
    if kind == _ENTERED:
        return _entered(event)
    if kind == _ADDED:
        return _added(event_id, header, event, channel)
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


def _entered(event: JsonNode) -> ChatEntered | None:
    chat, person = event.text("chat_id"), event["operator_id"].text("open_id")
    if not chat:
        return None
    return ChatEntered(chat=chat, person=person, is_first=not event.text("last_message_id"))


def _added(event_id: str, header: JsonNode, event: JsonNode, channel: str) -> BotAdded | None:
    chat, home = event.text("chat_id"), header.text("tenant_key")
    if not chat:
        return None
    kind = sender_kind(home, event.text("operator_tenant_key"))
    return BotAdded(
        event_id=event_id or chat,
        key=ConversationKey(channel=channel, workspace=home, chat=chat),
        added_by=Sender(user_id=event["operator_id"].text("open_id"), kind=kind),
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
