"""Feishu events as inbound messages, or the reason to ignore them. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from bots.common.events import HELP, IgnoredEvent
from bots.feishu.api import FeishuBot
from bots.feishu.buttons import CARD_ACTION, parse_button_press
from bots.feishu.content import (
    ParsedContent,
    UnsupportedContent,
    describe_unsupported,
    parse_content,
)
from bots.feishu.events import BotAdded, ChatEntered, MenuClick, parse_other_event, sender_kind
from bots.feishu.forwarded import MERGE_FORWARD, transcript_file
from bots.feishu.json_node import JsonNode
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    ReplyTarget,
    Sender,
)
from bus.platform import Disposition

_MESSAGE: Final = "im.message.receive_v1"
_PLACEHOLDER: Final = re.compile(r"(@_user_\d+|@_all(?!\w))( ?)")
_COMMAND_SUFFIX: Final = re.compile(r"^(\s*/[A-Za-z0-9_-]+)@(\S+)")


class _IgnoreEvent(Exception):
    """Carries the verdict out of the reading."""

    def __init__(self, reason: Disposition, detail: str) -> None:
        super().__init__(detail)
        self.ignored = IgnoredEvent(reason=reason, detail=detail)


FeishuEvent = (
    InboundMessage
    | ButtonPress
    | MessageDeletion
    | ChatEntered
    | BotAdded
    | MenuClick
    | IgnoredEvent
)
"""What an event can mean."""


def parse_event(envelope: JsonNode, bot: FeishuBot) -> FeishuEvent:
    """Return what an event says, or why it says nothing to us. Never raises on hostile input.

    >>> envelope = JsonNode({"header": {"event_type": "im.chat.disbanded_v1"}})
    >>> parse_event(envelope, FeishuBot(open_id="ou_b", name="B")).detail
    'im.chat.disbanded_v1'
    """
    try:
        return _event(envelope, bot)
    except _IgnoreEvent as verdict:
        return verdict.ignored
    except UnsupportedContent as error:
        return IgnoredEvent(str(error))


def replied_message(envelope: JsonNode) -> tuple[str, Mapping[str, str]]:
    """Return the id of the message that a message event replies to, "" for none; and whom it mentions, names by id."""
    message = envelope["event"]["message"]
    people = ((one["id"].text("open_id"), one.text("name")) for one in message.items("mentions"))
    return message.text("parent_id"), {user: name for user, name in people if user and name}


def _event(envelope: JsonNode, bot: FeishuBot) -> FeishuEvent:
    header, event = envelope["header"], envelope["event"]
    kind = header.text("event_type")
    if kind == _MESSAGE:
        return _message(header, event, bot)
    meant = (
        parse_button_press(envelope, bot.channel)
        if kind in ("", CARD_ACTION)
        else parse_other_event(kind, header, event, bot.channel)
    )
    if meant is None:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, kind[:80] or "an event without a type")
    return meant


def _message(header: JsonNode, event: JsonNode, bot: FeishuBot) -> InboundMessage:
    message, sender = event["message"], _sender(header, event["sender"], bot)
    message_id, chat = message.text("message_id"), message.text("chat_id")
    if not message_id or not chat:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, "a message without an id or chat")
    private = message.text("chat_type") == "p2p"
    parsed = _content(message, bot, private=private)
    mentions = list(message.items("mentions"))
    words, commanded = _command(_text(parsed.text, mentions, bot), bot)
    mentioned = any(_is_bot(mention, bot) for mention in mentions)
    is_addressed = private or commanded or mentioned
    if private and mentioned and not words and not parsed.attachments:
        words = HELP
    if sender.is_bot and (private or not is_addressed):
        raise _IgnoreEvent(Disposition.FROM_BOT, "the sender is an app")
    return InboundMessage(
        event_id=header.text("event_id") or message_id,
        message_id=message_id,
        key=_key(header, message, bot, private=private),
        reply_target=_reply_target(message),
        sender=sender,
        text=words,
        is_private=private,
        is_addressed=is_addressed,
        replies_to=_replies_to(message),
        track_replies=not private,
        attachments=parsed.attachments,
        sent_at=message.seconds("create_time"),
    )


def _content(message: JsonNode, bot: FeishuBot, *, private: bool) -> ParsedContent:
    """Return what a message says. What cannot be read is told in private, where it was sent to the bot."""
    kind, content = message.text("message_type"), message.raw("content")
    if kind == MERGE_FORWARD:
        return transcript_file(message)
    note = describe_unsupported(kind, content) if private else ""
    if note:
        return ParsedContent(text=note)
    return parse_content(message.text("message_id"), kind, content, bot.open_id)


def _sender(header: JsonNode, sender: JsonNode, bot: FeishuBot) -> Sender:
    user = sender["sender_id"].text("open_id")
    is_app = sender.text("sender_type") in {"app", "bot"}
    if user == bot.open_id or (is_app and not user):
        raise _IgnoreEvent(Disposition.FROM_BOT, "the sender is an app")
    if not user:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, "a message without a sender")
    kind = sender_kind(header.text("tenant_key"), sender.text("tenant_key"))
    return Sender(user_id=user, is_bot=is_app, kind=kind)


def _key(header: JsonNode, message: JsonNode, bot: FeishuBot, *, private: bool) -> ConversationKey:
    """Return the conversation: a topic is one, a chain of replies in a group is one, a private chat is one."""
    topic = message.text("thread_id")
    if not topic and not private:
        topic = message.text("root_id") or message.text("message_id")
    return ConversationKey(
        channel=bot.channel,
        workspace=header.text("tenant_key"),
        chat=message.text("chat_id"),
        topic=topic,
    )


def _reply_target(message: JsonNode) -> ReplyTarget:
    """Return where the answer goes. A topic is kept by replies alone: to its first message, if this one is gone."""
    thread = message.text("thread_id")
    return ReplyTarget(
        chat=message.text("chat_id"),
        thread=thread,
        reply_to=message.text("message_id"),
        thread_root=message.text("root_id") if thread else "",
    )


def _replies_to(message: JsonNode) -> tuple[str, ...]:
    """Return the messages that this one answers; in a topic the topic decides, not they."""
    if message.text("thread_id"):
        return ()
    ids = (message.text("parent_id"), message.text("root_id"))
    return tuple(dict.fromkeys(name for name in ids if name))


def _is_bot(mention: JsonNode, bot: FeishuBot) -> bool:
    return mention["id"].text("open_id") == bot.open_id


def _text(text: str, mentions: list[JsonNode], bot: FeishuBot) -> str:
    """Return the text without mentions of the bot and with readable mentions of others."""
    names = {"@_all": "@all"}
    for mention in mentions:
        name = mention.text("name") or "someone"
        names[mention.text("key")] = "" if _is_bot(mention, bot) else f"@{name}"

    def replaced(match: re.Match[str]) -> str:
        name = names.get(match[1], match[1])
        return name + match[2] if name else ""

    return _PLACEHOLDER.sub(replaced, text).strip()


def _command(text: str, bot: FeishuBot) -> tuple[str, bool]:
    """Take away the suffix of a command that names us, and tell whether there was one.

    >>> _command("/help@parley me", FeishuBot(open_id="ou_b", name="Parley"))
    ('/help me', True)
    """
    match = _COMMAND_SUFFIX.match(text)
    if match and match[2].casefold() == bot.name.casefold():
        return match[1] + text[match.end() :], True
    return text, False
