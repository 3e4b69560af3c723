"""Converts updates to events: message, edit, button press, chat migration, bot added, or ignored. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from bots.common.events import IgnoredEvent
from bots.telegram.content import has_content, kind_of_message
from bots.telegram.identity import TelegramIdentity
from bots.telegram.inbound import (
    language_of,
    parse_message,
    sender_of,
    thread_of,
    topic_of_chat,
)
from bots.telegram.payload import Json, as_int, as_str, as_time, person_name
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageEdit,
    ReplyTarget,
    Sender,
)

_CALLBACK_CHARACTERS = 128
"""Maximum length of our callback data, characters. A client may send anything."""


_KINDS = ("message", "edited_message", "callback_query", "my_chat_member")
_OUT = frozenset({"left", "kicked"})
_IN = frozenset({"member", "administrator"})
_GROUPS = frozenset({"group", "supergroup"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackQueryEvent:
    """A person pressed a button. Its query must always be answered, because the button spins until then.

    Attributes:
        press: The press; None = the button is not ours.
    """

    query_id: str
    press: ButtonPress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStoppedEvent:
    """A person stopped a draft.

    Attributes:
        draft_id: The draft's ID in `drafts.py`.
        press: The equivalent button press, without the token. `drafts.py` knows the token.
    """

    draft_id: int
    press: ButtonPress


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigratedEvent:
    """A group became a supergroup, with the same people and a new chat ID."""

    workspace: str
    old_chat: str
    new_chat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BotAddedEvent:
    """The bot was added to a group.

    Attributes:
        added_by: The person who added it.
        language: The language of that person's app; "" = unknown.
    """

    event_id: str
    workspace: str
    chat: str
    added_by: Sender
    language: str


TelegramEvent: TypeAlias = (
    InboundMessage
    | MessageEdit
    | CallbackQueryEvent
    | DraftStoppedEvent
    | ChatMigratedEvent
    | BotAddedEvent
    | IgnoredEvent
)


def parse_update(  # noqa: PLR0911 - one return per kind
    update: Json, identity: TelegramIdentity, commands: Collection[str]
) -> TelegramEvent:
    """Return the event of an update.

    Args:
        update: The raw update. Unknown kinds are ignored.
        identity: The bot.
        commands: Names of our commands.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: The update lacks required data, such as the person or the
            chat.
    """
    match update:
        case {"callback_query": dict() as query}:
            return _callback_query(update["update_id"], query, identity)
        case {"edited_message": dict() as message}:
            return _edit(update["update_id"], message, identity, commands)
        case {"my_chat_member": dict() as membership}:
            return _membership(update["update_id"], membership, identity)
        case {"message": dict() as message}:
            parsed = parse_message(message, update["update_id"], identity, commands)
            return _migration(message, identity) or parsed
        case {"stopped_message_generation": dict() as stopped}:
            return _stopped_draft(update["update_id"], stopped, identity)
        case _:
            kind = next((kind for kind in update if kind != "update_id"), "unknown update")
            if kind in _KINDS:
                raise TypeError(f"{kind} is not an object")
            return IgnoredEvent(kind)


def _migration(message: Json, identity: TelegramIdentity) -> ChatMigratedEvent | None:
    """Return the migration that a service message reports. Both chats report it, the old one first."""
    old, new = message["chat"]["id"], as_int(message.get("migrate_to_chat_id"))
    if (before := as_int(message.get("migrate_from_chat_id"))) is not None:
        old, new = before, message["chat"]["id"]
    if new is None:
        return None
    return ChatMigratedEvent(workspace=str(identity.user_id), old_chat=str(old), new_chat=str(new))


def _edit(
    update_id: int, message: Json, identity: TelegramIdentity, commands: Collection[str]
) -> MessageEdit | IgnoredEvent:
    """Return an edit. Ignores edited commands, which already ran, and locations, which change all the time."""
    if not has_content(message) or message.get("location") is not None:
        return IgnoredEvent(kind_of_message(message))
    edited = parse_message(message, update_id, identity, commands)
    if isinstance(edited, IgnoredEvent):
        return edited
    name, _, _ = edited.text.removeprefix("/").partition(" ")
    if edited.text.startswith("/") and name.lower() in commands:
        return IgnoredEvent("edited command")
    if (edited_at := as_time(message.get("edit_date"))) is not None:
        edited = replace(edited, edited_at=edited_at)
    return MessageEdit(
        event_id=edited.event_id, key=edited.key, message_id=edited.message_id, edited=edited
    )


def _membership(
    update_id: int, update: Json, identity: TelegramIdentity
) -> BotAddedEvent | IgnoredEvent:
    """Return an event if the bot was added to a group. Ignores other changes of its status."""
    status, kind = update["new_chat_member"]["status"], update["chat"]["type"]
    came = update["old_chat_member"]["status"] in _OUT and status in _IN
    if came and kind in _GROUPS:
        return BotAddedEvent(
            event_id=str(update_id),
            workspace=str(identity.user_id),
            chat=str(update["chat"]["id"]),
            added_by=sender_of(update["from"]),
            language=language_of(update["from"]),
        )
    return IgnoredEvent(f"the bot is now {status} in a {kind} chat")


def _callback_query(update_id: int, query: Json, identity: TelegramIdentity) -> CallbackQueryEvent:
    message, token, query_id = query.get("message"), as_str(query.get("data")), str(query["id"])
    if not isinstance(message, dict) or not token or len(token) > _CALLBACK_CHARACTERS:
        return CallbackQueryEvent(query_id=query_id, press=None)
    # For an old message, Telegram sends only its ID, its chat, and the date 0.
    chat, message_id = str(message["chat"]["id"]), str(message["message_id"])
    press = ButtonPress(
        event_id=str(update_id),
        key=ConversationKey(
            channel=identity.channel,
            workspace=str(identity.user_id),
            chat=chat,
            topic=topic_of_chat(message) if message.get("date") else "",
        ),
        reply_target=ReplyTarget(chat=chat, thread=thread_of(message), reply_to=message_id),
        message_id=message_id,
        token=token,
        sender=sender_of(query["from"]),
        is_private=message["chat"].get("type") == "private",
        language=language_of(query["from"]),
    )
    return CallbackQueryEvent(query_id=query_id, press=press)


def _stopped_draft(update_id: int, payload: Json, identity: TelegramIdentity) -> DraftStoppedEvent:
    """Return the press that corresponds to stopping a draft. Drafts are private, so the chat's ID is the person's.

    Raises:
        LookupError, TypeError, ValueError: The update has an unexpected form.
    """
    chat = str(int(payload["chat"]["id"]))
    thread = str(int(payload["message_thread_id"])) if payload.get("message_thread_id") else ""
    press = ButtonPress(
        event_id=str(update_id),
        key=ConversationKey(
            channel=identity.channel, workspace=str(identity.user_id), chat=chat, topic=thread
        ),
        reply_target=ReplyTarget(chat=chat, thread=thread),
        message_id="",
        token="",
        sender=Sender(user_id=chat, name=person_name(payload["chat"])),
        is_private=True,
    )
    return DraftStoppedEvent(draft_id=int(payload["draft_id"]), press=press)
