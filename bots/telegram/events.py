"""Updates to events: message, edit, button press, chat migration, bot added, or ignored. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from telegram import CallbackQuery, ChatMember, ChatMemberUpdated, Message, Update
from telegram.constants import ChatType

from bots.common.events import IgnoredEvent
from bots.telegram.inbound import (
    in_topic,
    is_content,
    kind_of_message,
    language_of,
    parse_message,
    sender_of,
)
from bots.telegram.mentions import TelegramIdentity
from bots.text.quotations import clean_name
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageEdit,
    ReplyTarget,
    Sender,
)

DRAFT_STOPPED = "stopped_message_generation"
"""The update of a stopped draft (Bot API 10.3); the SDK does not parse it."""

_CALLBACK_CHARACTERS = 128
"""Longer callback data is not ours: a client may send anything."""


_OUT = frozenset({ChatMember.LEFT, ChatMember.BANNED})
_IN = frozenset({ChatMember.MEMBER, ChatMember.ADMINISTRATOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackQueryEvent:
    """A pressed button. Its query must be answered in any case: the button spins until then.

    Attributes:
        press: None = a button that is none of ours.
    """

    query_id: str
    press: ButtonPress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStoppedEvent:
    """A person stopped a draft.

    Attributes:
        draft_id: Which draft, as `drafts.py` numbers them.
        press: What that is as a press, but for the token, which the draft's writer knows.
    """

    draft_id: int
    press: ButtonPress


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMigratedEvent:
    """A group became a supergroup: same people, new chat id."""

    workspace: str
    old_chat: str
    new_chat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BotAddedEvent:
    """The bot was added to a group.

    Attributes:
        added_by: Who added it.
        language: The language of that person's app; "" if unknown.
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
    update: Update, identity: TelegramIdentity, commands: Collection[str]
) -> TelegramEvent:
    """Return the event of an update.

    Args:
        update: As the SDK parsed it; kinds that it does not know are ignored.
        identity: The bot.
        commands: Names of our commands.
    """
    match update:
        case Update(callback_query=CallbackQuery() as query):
            return _callback_query(update.update_id, query, identity)
        case Update(edited_message=Message() as message):
            return _edit(update.update_id, message, identity, commands)
        case Update(my_chat_member=ChatMemberUpdated() as membership):
            return _membership(update.update_id, membership, identity)
        case Update(message=Message() as message):
            parsed = parse_message(message, update.update_id, identity, commands)
            return _migration(message, identity) or parsed
        case _ if DRAFT_STOPPED in update.api_kwargs:
            return _stopped_draft(update.update_id, update.api_kwargs[DRAFT_STOPPED], identity)
        case _:
            return IgnoredEvent(_kind_of(update))


def _kind_of(update: Update) -> str:
    known = (kind for kind in Update.ALL_TYPES if getattr(update, kind, None) is not None)
    return next(known, None) or next(iter(update.api_kwargs), "unknown update")


def _migration(message: Message, identity: TelegramIdentity) -> ChatMigratedEvent | None:
    """Return the migration that a service message reports; both chats report it, the old one first."""
    old, new = message.chat.id, message.migrate_to_chat_id
    if message.migrate_from_chat_id is not None:
        old, new = message.migrate_from_chat_id, message.chat.id
    if new is None:
        return None
    return ChatMigratedEvent(workspace=str(identity.user_id), old_chat=str(old), new_chat=str(new))


def _edit(
    update_id: int, message: Message, identity: TelegramIdentity, commands: Collection[str]
) -> MessageEdit | IgnoredEvent:
    """Return an edit. An edited command is ignored: it ran already. So is a place, which moves all the time."""
    if not is_content(message):
        return IgnoredEvent(kind_of_message(message))
    edited = parse_message(message, update_id, identity, commands)
    if isinstance(edited, IgnoredEvent):
        return edited
    name, _, _ = edited.text.removeprefix("/").partition(" ")
    if edited.text.startswith("/") and name.lower() in commands:
        return IgnoredEvent("edited command")
    if message.edit_date is not None:
        edited = replace(edited, edited_at=message.edit_date.timestamp())
    return MessageEdit(
        event_id=edited.event_id, key=edited.key, message_id=edited.message_id, edited=edited
    )


def _membership(
    update_id: int, update: ChatMemberUpdated, identity: TelegramIdentity
) -> BotAddedEvent | IgnoredEvent:
    """Return what became of the bot in a chat: added, made an admin, blocked, removed."""
    status, kind = update.new_chat_member.status, update.chat.type
    came = update.old_chat_member.status in _OUT and status in _IN
    if came and kind in {ChatType.GROUP, ChatType.SUPERGROUP}:
        user = update.from_user
        return BotAddedEvent(
            event_id=str(update_id),
            workspace=str(identity.user_id),
            chat=str(update.chat.id),
            added_by=sender_of(user),
            language=language_of(user),
        )
    return IgnoredEvent(f"the bot is now {status} in a {kind} chat")


def _callback_query(
    update_id: int, query: CallbackQuery, identity: TelegramIdentity
) -> CallbackQueryEvent:
    message, token = query.message, str(query.data or "")
    if message is None or not token or len(token) > _CALLBACK_CHARACTERS:
        return CallbackQueryEvent(query_id=query.id, press=None)
    # Of an old message Telegram sends no more than its id and chat.
    thread = ""
    if isinstance(message, Message) and in_topic(message):
        thread = str(message.message_thread_id)
    chat = str(message.chat.id)
    press = ButtonPress(
        event_id=str(update_id),
        key=ConversationKey(
            channel=identity.channel, workspace=str(identity.user_id), chat=chat, topic=thread
        ),
        reply_target=ReplyTarget(chat=chat, thread=thread, reply_to=str(message.message_id)),
        message_id=str(message.message_id),
        token=token,
        sender=sender_of(query.from_user),
        is_private=message.chat.type == ChatType.PRIVATE,
        language=language_of(query.from_user),
    )
    return CallbackQueryEvent(query_id=query.id, press=press)


def _stopped_draft(
    update_id: int, payload: Mapping[str, Any], identity: TelegramIdentity
) -> DraftStoppedEvent:
    """Return the press that stopping a draft stands for. Drafts are private: the chat is the person.

    Raises:
        LookupError, TypeError, ValueError: the update has an unforeseen shape.
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
        sender=Sender(user_id=chat, name=clean_name(str(payload["chat"].get("first_name") or ""))),
        is_private=True,
    )
    return DraftStoppedEvent(draft_id=int(payload["draft_id"]), press=press)
