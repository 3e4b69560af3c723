"""Telegram messages to `InboundMessage`, or the reason why not. Pure."""

from collections.abc import Collection

from telegram import Message, User
from telegram.constants import ChatType
from telegram.helpers import effective_message_type

from bots.common.events import HELP, IgnoredEvent
from bots.telegram.attachments import parse_attachments
from bots.telegram.content import describe_content
from bots.telegram.mentions import ParsedText, TelegramIdentity, parse_text
from bots.telegram.quotes import forwarded, is_forwarded, quotations, quoted_message
from bots.text.quotations import clean_name
from bus.messages import Attachment, ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition

_MAX_LANGUAGE_CHARS = 35
"""Longest language tag (RFC 5646 4.4.1)."""


def parse_message(
    message: Message, update_id: int, identity: TelegramIdentity, commands: Collection[str]
) -> InboundMessage | IgnoredEvent:
    """Return the bus's form of a message that an update brought.

    `commands`: names of our commands. In a group, one without `@bot` suffix goes to every bot, so only ours address us.
    """
    author = _author(message, identity)
    if isinstance(author, IgnoredEvent):
        return author
    parsed = _parsed_text(message, identity)
    is_private = _is_private(message)
    if not is_content(message):
        # In a group a sticker or a place is not for us, whatever it replies to. In private, somebody waits.
        shown = describe_content(message) if is_private else ""
        if not shown:
            return IgnoredEvent(kind_of_message(message))
        parsed = ParsedText(text=shown)
    if nobody_asks := _not_for_us(message, parsed):
        return IgnoredEvent(nobody_asks, Disposition.NOT_ADDRESSED)
    is_addressed = _is_addressed(message, parsed, identity, commands)
    if author.is_bot and (is_private or not is_addressed):
        return IgnoredEvent(kind_of_message(message), Disposition.FROM_BOT)
    attachments = parse_attachments(message) + _quoted_files(message, parsed, identity)
    text, quoted = _text(message, parsed, identity, commands)
    if parsed.mentioned and not (text or quoted or attachments or author.is_bot):
        text = HELP
    return InboundMessage(
        event_id=str(update_id),
        message_id=str(message.message_id),
        key=_key(message, identity),
        reply_target=_reply_target(message),
        sender=author,
        text=text,
        quoted=quoted,
        is_private=is_private,
        is_addressed=is_addressed,
        replies_to=_replies_to(message),
        track_replies=_tracks_replies(message),
        attachments=attachments,
        sent_at=message.date.timestamp(),
        language=language_of(message.from_user),
        album=str(message.media_group_id or ""),
    )


def _key(message: Message, identity: TelegramIdentity) -> ConversationKey:
    return ConversationKey(
        channel=identity.channel,
        workspace=str(identity.user_id),
        chat=str(message.chat.id),
        topic=_topic(message),
    )


def _not_for_us(message: Message, parsed: ParsedText) -> str:
    """Return why a message is for others, also where the bot answers whatever is said; "" if it may be for the bot."""
    if parsed.for_other and not is_forwarded(message):
        return "another bot's command"
    if message.is_automatic_forward and not parsed.mentioned:
        # What a channel posts arrives in its discussion group, too: it is for the readers.
        return "channel post"
    return ""


def is_content(message: Message) -> bool:
    """Return whether a message has words or files of its own."""
    return (
        message.text is not None or message.caption is not None or bool(parse_attachments(message))
    )


def kind_of_message(message: Message) -> str:
    """Return what kind of message it is, by Telegram's name."""
    kind = effective_message_type(message)
    return str(kind) if kind else next(iter(message.api_kwargs), "service message")


def _author(message: Message, identity: TelegramIdentity) -> Sender | IgnoredEvent:
    """Return who wrote. `sender_chat` goes first: `from` is then a stand-in bot of Telegram's.

    An anonymous admin speaks as the group, a channel as itself.
    """
    chat, user = message.sender_chat, message.from_user
    if message.chat.type == ChatType.CHANNEL or (chat is None and user is None):
        return IgnoredEvent("channel post")
    if chat is not None:
        return Sender(user_id=str(chat.id), name=clean_name(chat.title or chat.username or ""))
    if user is None or user.id == identity.user_id:
        return IgnoredEvent(kind_of_message(message), Disposition.FROM_BOT)
    return sender_of(user)


def sender_of(user: User) -> Sender:
    """Return a person, or a bot, as the bus knows them."""
    return Sender(user_id=str(user.id), name=clean_name(user.full_name), is_bot=bool(user.is_bot))


def language_of(user: User | None) -> str:
    """Return the language of a person's app; "" if unknown."""
    return str(user.language_code or "")[:_MAX_LANGUAGE_CHARS] if user is not None else ""


def _is_private(message: Message) -> bool:
    return message.chat.type == ChatType.PRIVATE


def in_topic(message: Message) -> bool:
    """Return whether a message is in a topic; a thread id alone may be a plain group's reply thread."""
    return bool(message.is_topic_message) and message.message_thread_id is not None


def _tracks_replies(message: Message) -> bool:
    """Return whether replies define the conversation: in groups, outside of topics."""
    return not _is_private(message) and not in_topic(message)


def _topic(message: Message) -> str:
    if in_topic(message):
        return str(message.message_thread_id)
    return "" if _is_private(message) else str(message.message_id)


def _reply_target(message: Message) -> ReplyTarget:
    return ReplyTarget(
        chat=str(message.chat.id),
        thread=str(message.message_thread_id) if in_topic(message) else "",
        reply_to=str(message.message_id),
    )


def _replied_message(message: Message) -> Message | None:
    """Return the message that was replied to. In a topic, every message replies to its first one."""
    replied = message.reply_to_message
    if replied is None or replied.forum_topic_created is not None:
        return None
    if replied.chat.id != message.chat.id:
        return None
    return replied


def _replies_to(message: Message) -> tuple[str, ...]:
    """Return which messages a message outside of topics answers.

    A message of another chat is named with that chat: it may be the group that became this supergroup
    (`store.conversations.ChatMigration`). Of any other chat nothing is known under such a name.
    """
    if not _tracks_replies(message):
        return ()
    replied, elsewhere = (
        _replied_message(message),
        message.reply_to_message or message.external_reply,
    )
    if replied is not None:
        return (str(replied.message_id),)
    chat = elsewhere.chat if elsewhere is not None else None
    if elsewhere is None or chat is None or chat.id == message.chat.id or not elsewhere.message_id:
        return ()
    return (f"{chat.id}:{elsewhere.message_id}",)


def _is_addressed(
    message: Message, parsed: ParsedText, identity: TelegramIdentity, commands: Collection[str]
) -> bool:
    is_command = parsed.command in commands and not is_forwarded(message)
    if _is_private(message) or parsed.mentioned or is_command:
        return True
    replied = _replied_message(message)
    writer = replied.from_user if replied else None
    return writer is not None and writer.id == identity.user_id


def _parsed_text(message: Message, identity: TelegramIdentity) -> ParsedText:
    if message.text is not None:
        return parse_text(message.text, message.entities, identity)
    return parse_text(message.caption or "", message.caption_entities, identity)


def _text(
    message: Message, parsed: ParsedText, identity: TelegramIdentity, commands: Collection[str]
) -> tuple[str, str]:
    """Return the text, and what it quotes; `/start`, which Telegram sends first to every bot, becomes `/help`.

    A command is for us alone; a forwarded one is somebody else's words.
    """
    if is_forwarded(message) and message.forward_origin is not None:
        return "", forwarded(parsed.text, message.forward_origin)
    if parsed.command == "start" and "start" not in commands and "help" in commands:
        return "/help", ""
    if parsed.command in commands or not _says(parsed):
        return parsed.text, ""
    return parsed.text, quotations(message, identity)


def _says(parsed: ParsedText) -> bool:
    """Return whether a message is about what it replies to. A file is not: those of an album would all be."""
    return bool(parsed.text) or parsed.mentioned


def _quoted_files(
    message: Message, parsed: ParsedText, identity: TelegramIdentity
) -> tuple[Attachment, ...]:
    """Return the files of the message that somebody says something about."""
    quoted = quoted_message(message, identity) if _says(parsed) else None
    return parse_attachments(quoted) if quoted is not None else ()
