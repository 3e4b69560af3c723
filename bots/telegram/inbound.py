"""Converts Telegram messages to `InboundMessage`, or to the reason to ignore them. Pure."""

from collections.abc import Collection

from bots.common.attachments import as_quoted
from bots.common.events import HELP, IgnoredEvent
from bots.telegram.content import TelegramContent, has_content, kind_of_message, read_content
from bots.telegram.identity import TelegramIdentity
from bots.telegram.payload import (
    Json,
    as_int,
    as_line,
    as_object,
    as_str,
    as_time,
    chat_name,
    person_name,
)
from bots.telegram.quotes import (
    QuotedContent,
    chat_title,
    forwarded,
    is_by_bot,
    is_forwarded,
    read_quoted,
    replied_message,
)
from bots.text.characters import utf16_length
from bus.characters import clean
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition

GENERAL_TOPIC = 1
"""The ID of a forum's General topic (core.telegram.org/api/forum). The Bot API does not document it, and refuses it."""

_MAX_LANGUAGE_CHARS = 35
"""Maximum length of a language tag, characters (RFC 5646 4.4.1)."""

_CUT_FROM_UNITS = 2_048
"""Minimum length of a text that may be the beginning of a longer one that an app split, UTF-16 code units.

Apps send at most 4,096 units. Android splits a text within the last 300 of these, Desktop at the best place in the
second half, and iOS at the last line end or period.
"""


def parse_message(
    message: Json, update_id: int, identity: TelegramIdentity, commands: Collection[str]
) -> InboundMessage | IgnoredEvent:
    """Convert the message of an update.

    `commands`: names of our commands. In a group, every bot gets commands without an `@bot` suffix, so only our own
        commands address this bot.

    Raises:
        LookupError, TypeError, ValueError: The message does not say where it comes from.
    """
    author = _author(message, identity)
    if isinstance(author, IgnoredEvent):
        return author
    is_private = _is_private(message)
    content = read_content(message, identity) if has_content(message) else TelegramContent()
    if reason := _not_for_us(message, content, identity):
        return reason
    is_addressed = _is_addressed(message, content, identity, commands)
    if author.is_bot and (is_private or not is_addressed):
        return IgnoredEvent(kind_of_message(message), Disposition.FROM_BOT)
    text, quoted = _text(message, content, identity, commands)
    own = as_quoted(content.files) if is_forwarded(message) else content.files
    files = own + as_quoted(quoted.files)
    is_bare = content.mentioned and not (text or quoted.text or files or author.is_bot)
    message_id = str(message["message_id"])
    return InboundMessage(
        event_id=str(update_id),
        message_id=message_id,
        key=ConversationKey(
            channel=identity.channel,
            workspace=str(identity.user_id),
            chat=str(message["chat"]["id"]),
            topic=_topic(message),
        ),
        reply_target=ReplyTarget(
            chat=str(message["chat"]["id"]), thread=thread_of(message), reply_to=message_id
        ),
        sender=author,
        text=HELP if is_bare else text,
        quoted=quoted.text,
        is_private=is_private,
        is_addressed=is_addressed,
        replies_to=_replies_to(message),
        track_replies=_tracks_replies(message),
        attachments=files,
        sent_at=as_time(message.get("date")),
        language=language_of(message.get("from")),
        album=str(message.get("media_group_id") or ""),
        order=as_int(message["message_id"]) or 0,
        is_bare_mention=is_bare,
        mentions_others=content.mentions_people and not content.mentioned,
        is_forwarded=is_forwarded(message),
        is_cut=utf16_length(clean(as_str(message.get("text")))) > _CUT_FROM_UNITS,
        chat_title=chat_title(message),
        topic_title=_topic_title(message),
    )


def _text(
    message: Json, content: TelegramContent, identity: TelegramIdentity, commands: Collection[str]
) -> tuple[str, QuotedContent]:
    """Return the sender's own words, and the message that they refer to.

    `/start`, which Telegram sends first to every bot, becomes `/help`. A command is read without formatting. A
    forwarded command is not run.
    """
    if is_forwarded(message):
        return "", QuotedContent(text=forwarded(content, message))
    if content.command == "start" and "start" not in commands and "help" in commands:
        return HELP, QuotedContent()
    if content.command in commands:
        return content.plain, QuotedContent()
    # In an album, only messages with text get the quotation, so that it is not repeated.
    if not (content.text or content.mentioned) and message.get("media_group_id"):
        return content.text, QuotedContent()
    return content.text, read_quoted(message, identity)


def _not_for_us(
    message: Json, content: TelegramContent, identity: TelegramIdentity
) -> IgnoredEvent | None:
    """Return why a message is not for the bot even if the bot answers everything; None if it may be for the bot."""
    is_for_bot = _is_private(message) or _replies_to_bot(message, identity)
    if not (content.is_own or (is_for_bot and (content.text or content.files))):
        return IgnoredEvent(kind_of_message(message))
    if content.for_other and not is_forwarded(message):
        return IgnoredEvent("another bot's command", Disposition.NOT_ADDRESSED)
    if message.get("is_automatic_forward") and not content.mentioned:
        # A channel's posts also arrive in its discussion group. They are meant for readers, not for the bot.
        return IgnoredEvent("channel post", Disposition.NOT_ADDRESSED)
    return None


def _author(message: Json, identity: TelegramIdentity) -> Sender | IgnoredEvent:
    """Return the author.

    `sender_chat` takes precedence, because `from` is then one of Telegram's placeholder bots. Anonymous admins write as
    the group, and channels as themselves.
    """
    chat, user = as_object(message.get("sender_chat")), as_object(message.get("from"))
    if message["chat"].get("type") == "channel" or not (chat or user):
        return IgnoredEvent("channel post")
    if chat:
        return Sender(user_id=str(chat["id"]), name=chat_name(chat))
    if user["id"] == identity.user_id:
        return IgnoredEvent(kind_of_message(message), Disposition.FROM_BOT)
    return sender_of(user)


def sender_of(user: Json) -> Sender:
    """Return a person or a bot as a sender. Raises LookupError for a user without an ID."""
    return Sender(user_id=str(user["id"]), name=person_name(user), is_bot=bool(user.get("is_bot")))


def language_of(user: object) -> str:
    """Return the language of a person's app; "" = unknown."""
    return as_str(as_object(user).get("language_code"))[:_MAX_LANGUAGE_CHARS]


def _is_private(message: Json) -> bool:
    return as_object(message.get("chat")).get("type") == "private"


def thread_of(message: Json) -> str:
    """Return the topic for answers; "" = outside of topics, or in General, because Telegram refuses its ID.

    A thread ID alone does not mean a topic. It may be a reply thread in an ordinary group.
    """
    thread = as_int(message.get("message_thread_id"))
    if not message.get("is_topic_message") or thread is None:
        return ""
    return "" if thread == GENERAL_TOPIC and not _is_private(message) else str(thread)


def topic_of_chat(message: Json) -> str:
    """Return the topic of a message in a private chat or forum; "" = outside of topics."""
    is_forum = bool(as_object(message.get("chat")).get("is_forum")) and not _is_private(message)
    return thread_of(message) or (str(GENERAL_TOPIC) if is_forum else "")


def _tracks_replies(message: Json) -> bool:
    """Return whether replies determine the conversation: in groups, outside of topics."""
    return not _is_private(message) and not topic_of_chat(message)


def _topic(message: Json) -> str:
    return str(message["message_id"]) if _tracks_replies(message) else topic_of_chat(message)


def _topic_title(message: Json) -> str:
    """Return the name of a topic if the message contains it."""
    if topic_of_chat(message) and not thread_of(message):
        return "General"
    opening = as_object(as_object(message.get("reply_to_message")).get("forum_topic_created"))
    return as_line(opening.get("name")) if thread_of(message) else ""


def _replies_to(message: Json) -> tuple[str, ...]:
    """Return the messages that a message outside of topics replies to.

    A message of another chat is named with that chat's ID, because that chat may be the group that became this
    supergroup (`store.conversations.ChatMigration`). If it is any other chat, nothing has this name.
    """
    if not _tracks_replies(message):
        return ()
    if replied := replied_message(message):
        return (str(replied["message_id"]),) if "message_id" in replied else ()
    foreign = as_object(message.get("reply_to_message")) or as_object(message.get("external_reply"))
    chat = as_object(foreign.get("chat")).get("id")
    if chat in (None, message["chat"]["id"]) or not foreign.get("message_id"):
        return ()
    return (f"{chat}:{foreign['message_id']}",)


def _is_addressed(
    message: Json, content: TelegramContent, identity: TelegramIdentity, commands: Collection[str]
) -> bool:
    is_command = content.command in commands and not is_forwarded(message)
    by_name = content.mentioned or is_command
    return _is_private(message) or by_name or _replies_to_bot(message, identity)


def _replies_to_bot(message: Json, identity: TelegramIdentity) -> bool:
    """Return whether a message replies to a message of the bot, here or in another topic or chat."""
    replied = replied_message(message) or as_object(message.get("external_reply"))
    return is_by_bot(replied, identity)
