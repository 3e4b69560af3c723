"""What a message says beside its own words: what it replies to, and who wrote what it forwards. Pure."""

from telegram import (
    Chat,
    Message,
    MessageOrigin,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    User,
)

from bots.telegram.content import describe_content
from bots.telegram.mentions import TelegramIdentity, parse_text
from bots.text.characters import clean
from bots.text.quotations import FORWARDED, clean_name, quotation


def quotations(message: Message, identity: TelegramIdentity) -> str:
    """Return what a message replies to, as a quotation; "" for nothing.

    Words that the conversation has already, those of the bot, are quoted only where the person selected some of them.
    """
    words = _quoted_words(message, identity)
    return quotation(words, _quoted_author(message, identity))


def forwarded(text: str, origin: MessageOrigin) -> str:
    """Return forwarded words as a quotation."""
    return quotation(text, _origin_name(origin), heading=FORWARDED)


def is_forwarded(message: Message) -> bool:
    """Return whether a person passed on what somebody wrote; a channel's post in its discussion group is its own."""
    return message.forward_origin is not None and not message.is_automatic_forward


def quoted_message(message: Message, identity: TelegramIdentity) -> Message | None:
    """Return the message of somebody else that a message replies to, in the same chat; None if there is none.

    In a private chat there is nobody else: what was said there is in the conversation already.
    """
    replied = message.reply_to_message
    if replied is None or message.chat.type == Chat.PRIVATE or replied.chat.id != message.chat.id:
        return None
    writer = replied.from_user
    return None if writer is not None and writer.id == identity.user_id else replied


def _quoted_words(message: Message, identity: TelegramIdentity) -> str:
    """Return the words that a person replies to: the part that they selected, else all of another person's."""
    if message.quote is not None and (message.quote.is_manual or message.external_reply):
        return clean(message.quote.text).strip()
    replied = quoted_message(message, identity)
    if replied is None:
        return ""
    words = replied.text or replied.caption
    if words is None:
        return describe_content(replied)
    entities = replied.caption_entities if replied.text is None else replied.entities
    # The bot's name stays: somebody else was talking to it, or about it.
    nobody = TelegramIdentity(user_id=0, username="")
    return parse_text(words, entities, nobody).text


def _quoted_author(message: Message, identity: TelegramIdentity) -> str:
    replied = message.reply_to_message
    if message.external_reply is not None:
        return _origin_name(message.external_reply.origin)
    if replied is not None and replied.sender_chat is not None:
        return _chat_name(replied.sender_chat)
    writer = replied.from_user if replied is not None else None
    if writer is None:
        return ""
    return "You" if writer.id == identity.user_id else _user_name(writer)


def _origin_name(origin: MessageOrigin) -> str:
    match origin:
        case MessageOriginUser(sender_user=user):
            return _user_name(user)
        case MessageOriginHiddenUser(sender_user_name=name):
            return clean_name(name)
        case MessageOriginChat(sender_chat=chat) | MessageOriginChannel(chat=chat):
            return _chat_name(chat)
        case _:
            return "elsewhere"


def _user_name(user: User) -> str:
    return clean_name(user.full_name)


def _chat_name(chat: Chat) -> str:
    return clean_name(chat.title or chat.username or "")
