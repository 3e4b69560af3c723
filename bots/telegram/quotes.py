"""Reads what a Telegram message refers to: replies, quotes and forwards. Pure."""

from dataclasses import dataclass

from bots.telegram.content import TelegramContent, read_content, unreadable
from bots.telegram.entity_markdown import parse_text
from bots.telegram.identity import NOBODY, TelegramIdentity
from bots.telegram.payload import (
    UNREADABLE,
    Json,
    as_list,
    as_object,
    as_objects,
    as_str,
    chat_name,
    origin_name,
    sender_name,
)
from bots.text.characters import safe_cut
from bots.text.quotations import FORWARDED, quotation
from bus.messages import Attachment

MAX_OWN_ANSWER_CHARS = 10_000
"""Maximum length of a quotation of the bot, characters. The conversation may already contain the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedContent:
    """Other people's text and files that a message refers to. The text is quoted."""

    text: str = ""
    files: tuple[Attachment, ...] = ()


def is_forwarded(message: Json) -> bool:
    """Return whether a person forwarded a message. A channel's post in its discussion group does not count."""
    return message.get("forward_origin") is not None and not message.get("is_automatic_forward")


def forwarded(content: TelegramContent, message: Json) -> str:
    """Return the content of a forwarded message as a quotation."""
    author = origin_name(message.get("forward_origin"))
    return quotation(content.shown, author, heading=FORWARDED)


def read_quoted(message: Json, identity: TelegramIdentity) -> QuotedContent:
    """Return the message or story that a message replies to, here or in another chat or topic. Never raises."""
    if message.get("reply_to_story") is not None:
        story = read_content({"story": message["reply_to_story"]}, NOBODY)
        return QuotedContent(text=quotation(story.text))
    field = "external_reply" if message.get("external_reply") is not None else "reply_to_message"
    if message.get(field) is None or opens_topic(message[field]):
        return QuotedContent()
    try:
        return _read_reply(message, field, identity)
    except UNREADABLE:
        return QuotedContent(text=quotation(unreadable(field)))


def replied_message(message: Json) -> Json:
    """Return the original message of a reply in the same chat; an empty object if there is none.

    In a topic, every message replies to the message that opened the topic. That does not count as a reply.
    """
    replied = as_object(message.get("reply_to_message"))
    here, there = as_object(message.get("chat")), as_object(replied.get("chat"))
    return (
        replied
        if replied and not opens_topic(replied) and here.get("id") == there.get("id")
        else {}
    )


def opens_topic(message: object) -> bool:
    """Return whether a message is the first message of a forum topic."""
    return as_object(message).get("forum_topic_created") is not None


def is_by_bot(message: Json, identity: TelegramIdentity) -> bool:
    """Return whether the bot wrote a Message, or the message behind an ExternalReplyInfo."""
    origin = as_object(message.get("origin"))
    author = as_object(message.get("from")) or as_object(origin.get("sender_user"))
    return "sender_chat" not in message and author.get("id") == identity.user_id


def _read_reply(message: Json, field: str, identity: TelegramIdentity) -> QuotedContent:
    replied = message[field]
    if not isinstance(replied, dict):
        raise TypeError(f"{field} is not an object")
    content = read_content(_chosen_part(replied, message), NOBODY)
    words = _selected_words(message, field)
    if words and field == "external_reply":
        shown = f"{words}\n{content.shown}".rstrip()
    elif words:
        shown = "\n".join([words, *(f"[File: {file.name}]" for file in content.files)])
    else:
        shown = forwarded(content, replied) if is_forwarded(replied) else content.shown
    if not is_by_bot(replied, identity):
        external = field == "external_reply"
        author = origin_name(replied.get("origin")) if external else sender_name(replied)
        return QuotedContent(text=quotation(shown, author), files=content.files)
    if len(shown) > MAX_OWN_ANSWER_CHARS:
        shown = f"{shown[: safe_cut(shown, MAX_OWN_ANSWER_CHARS)].rstrip()}…"
    return QuotedContent(text=quotation(shown, "You"), files=content.files)


def _selected_words(message: Json, field: str) -> str:
    """Return the part that a person selected to quote, or that Telegram quotes from another chat's message."""
    quote = as_object(message.get("quote"))
    if not (quote.get("is_manual") or field == "external_reply"):
        return ""
    return parse_text(as_str(quote.get("text")), as_list(quote.get("entities")), NOBODY).text


def _chosen_part(replied: Json, message: Json) -> Json:
    """Return the original message of a reply, reduced to the task or option that the reply refers to, if any."""
    for field, items, key, chosen in (
        ("checklist", "tasks", "id", message.get("reply_to_checklist_task_id")),
        ("poll", "options", "persistent_id", message.get("reply_to_poll_option_id")),
    ):
        whole = as_object(replied.get(field))
        kept = [item for item in as_objects(whole.get(items)) if item.get(key) == chosen]
        if chosen is not None and kept:
            return {**replied, field: {**whole, items: kept}}
    return replied


def chat_title(message: Json) -> str:
    """Return the name of a message's group or channel; "" = a private chat."""
    chat = as_object(message.get("chat"))
    return "" if chat.get("type") == "private" else chat_name(chat)
