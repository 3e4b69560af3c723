"""Feishu events to messages of the bus. Pure."""

import json
import re
from dataclasses import dataclass
from typing import Final

from bots.feishu.api import Bot
from bots.feishu.content import Said, Unreadable, read_content, unread
from bots.feishu.envelope import Node
from bots.feishu.forwarded import NAME, REF
from bots.feishu.happenings import CHANNEL, Arrival, Menu, read_happening
from bots.feishu.presses import PRESS, read_press
from bus.messages import (
    Attachment,
    ButtonPress,
    Change,
    ConversationKey,
    InboundMessage,
    ReplyTarget,
    Sender,
)
from bus.platform import Reason

_FORWARDED: Final = "merge_forward"
_MESSAGE: Final = "im.message.receive_v1"
_PLACEHOLDER: Final = re.compile(r"(@_user_\d+|@_all(?!\w))( ?)")
_COMMAND_SUFFIX: Final = re.compile(r"^(\s*/[A-Za-z0-9_-]+)@(\S+)")
_CLOCK_DIGITS: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """An event that is not a message for us, and why."""

    reason: Reason
    detail: str


class _NotOurs(Exception):
    """Carries the verdict out of the reading."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.ignored = Ignored(reason=reason, detail=detail)


Event = InboundMessage | ButtonPress | Change | Arrival | Menu | Ignored
"""What an event can mean."""


def read_event(payload: bytes, bot: Bot) -> Event:
    """Return what an event says, or why it says nothing to us. Never raises on hostile input.

    >>> read_event(b'{"header": {"event_type": "im.chat.disbanded_v1"}}', Bot(open_id="ou_b", name="B")).detail
    'im.chat.disbanded_v1'
    """
    try:
        envelope = json.loads(payload)
    except (ValueError, RecursionError):
        return Ignored(reason=Reason.UNSUPPORTED, detail="the event is not JSON")
    try:
        return _event(Node(envelope), bot)
    except _NotOurs as verdict:
        return verdict.ignored
    except Unreadable as error:
        return Ignored(reason=Reason.UNSUPPORTED, detail=str(error))


def _event(envelope: Node, bot: Bot) -> Event:
    header, event = envelope["header"], envelope["event"]
    kind = header.text("event_type")
    if kind == _MESSAGE:
        return _message(header, event, bot)
    meant = read_press(envelope) if kind in ("", PRESS) else read_happening(kind, header, event)
    if meant is None:
        raise _NotOurs(Reason.UNSUPPORTED, kind[:80] or "an event without a type")
    return meant


def _message(header: Node, event: Node, bot: Bot) -> InboundMessage:
    message, sender = event["message"], _sender(event["sender"], bot)
    message_id, chat = message.text("message_id"), message.text("chat_id")
    if not message_id or not chat:
        raise _NotOurs(Reason.UNSUPPORTED, "a message without an id or chat")
    private = message.text("chat_type") == "p2p"
    said = _said(message, bot, private=private)
    mentions = list(message.items("mentions"))
    words, commanded = _command(_words(said.text, mentions, bot), bot)
    return InboundMessage(
        event_id=header.text("event_id") or message_id,
        message_id=message_id,
        key=_key(header, message, private=private),
        place=ReplyTarget(chat=chat, thread=message.text("thread_id"), reply_to=message_id),
        sender=sender,
        text=words,
        private=private,
        addressed=private or commanded or any(_is_bot(mention, bot) for mention in mentions),
        replies_to=_replies_to(message),
        remember=not private,
        attachments=said.attachments,
        sent_at=_seconds(message.text("create_time")),
    )


def _said(message: Node, bot: Bot, *, private: bool) -> Said:
    """Return what a message says. What cannot be read is told in private, where it was sent to the bot."""
    kind, content = message.text("message_type"), message.raw("content")
    if kind == _FORWARDED:
        ref = f"{REF}{message.text('message_id')}"
        return Said(attachments=(Attachment(name=NAME, mime="text/markdown", ref=ref),))
    told = unread(kind, content) if private else ""
    if told:
        return Said(text=told)
    return read_content(message.text("message_id"), kind, content, bot.open_id)


def _sender(sender: Node, bot: Bot) -> Sender:
    user = sender["sender_id"].text("open_id")
    if sender.text("sender_type") in {"app", "bot"} or user == bot.open_id:
        raise _NotOurs(Reason.FROM_BOT, "the sender is an app")
    if not user:
        raise _NotOurs(Reason.UNSUPPORTED, "a message without a sender")
    return Sender(user_id=user)


def _key(header: Node, message: Node, *, private: bool) -> ConversationKey:
    """Return the conversation: a topic is one, a chain of replies in a group is one, a private chat is one."""
    topic = message.text("thread_id")
    if not topic and not private:
        topic = message.text("root_id") or message.text("message_id")
    return ConversationKey(
        channel=CHANNEL,
        workspace=header.text("tenant_key"),
        chat=message.text("chat_id"),
        topic=topic,
    )


def _replies_to(message: Node) -> tuple[str, ...]:
    """Return the messages that this one answers; in a topic the topic decides, not they."""
    if message.text("thread_id"):
        return ()
    ids = (message.text("parent_id"), message.text("root_id"))
    return tuple(dict.fromkeys(name for name in ids if name))


def _is_bot(mention: Node, bot: Bot) -> bool:
    return mention["id"].text("open_id") == bot.open_id


def _words(text: str, mentions: list[Node], bot: Bot) -> str:
    """Return the text without mentions of the bot and with readable mentions of others."""
    names = {"@_all": "@all"}
    for mention in mentions:
        name = mention.text("name") or "someone"
        names[mention.text("key")] = "" if _is_bot(mention, bot) else f"@{name}"

    def replaced(match: re.Match[str]) -> str:
        name = names.get(match[1], match[1])
        return name + match[2] if name else ""

    return _PLACEHOLDER.sub(replaced, text).strip()


def _command(text: str, bot: Bot) -> tuple[str, bool]:
    """Take away the suffix of a command that names us, and tell whether there was one.

    >>> _command("/help@parley me", Bot(open_id="ou_b", name="Parley"))
    ('/help me', True)
    """
    match = _COMMAND_SUFFIX.match(text)
    if match and match[2].casefold() == bot.name.casefold():
        return match[1] + text[match.end() :], True
    return text, False


def _seconds(milliseconds: str) -> float | None:
    plain = milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= _CLOCK_DIGITS
    return int(milliseconds) / 1000 if plain else None
