"""Converts Feishu events to inbound messages, or to the reason to ignore them. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bots.common.attachments import as_quoted
from bots.common.events import HELP, IgnoredEvent
from bots.feishu.api import FeishuBot
from bots.feishu.buttons import CARD_ACTION, parse_button_press
from bots.feishu.content import (
    CARD,
    MERGE_FORWARD,
    FeishuContent,
    UnsupportedContent,
    is_withheld,
    mention_id,
    message_type,
    read_message,
)
from bots.feishu.events import BotAdded, ChatEntered, MenuClick, parse_other_event, sender_kind
from bots.feishu.json_node import JsonNode
from bots.feishu.quotes import quote_message
from bots.text.quotations import FORWARDED, quotation
from bus.characters import clean_name
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    ReplyTarget,
    Sender,
)
from bus.platform import Disposition

_MESSAGE = "im.message.receive_v1"
_SPOKEN = frozenset(
    {"text", "post", "image", "file", "audio", "media", "video", CARD, MERGE_FORWARD}
)
"""Types of messages that can address the bot in a group.

Other types, such as stickers and polls, are for the bot only if they reply to it or are in its topic.
"""

_COMMAND_SUFFIX = re.compile(r"^(\s*/[A-Za-z0-9_-]+)@(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuContext:
    """Data from the API that an event does not contain.

    Attributes:
        names: Names of people and groups by ID.
        page: The message as the API returns it, then the messages inside it; empty = it was not requested.
        parent: The same for the message that it replies to; empty = that message cannot be read, None = it is not
            quoted.
        chat_title: The name of the group.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    page: Sequence[JsonNode] = ()
    parent: Sequence[JsonNode] | None = None
    chat_title: str = ""


NO_CONTEXT = FeishuContext()


class _IgnoreEvent(Exception):
    """Carries the reason to ignore an event out of the parsing functions."""

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
"""The possible results of parsing an event."""


def parse_event(
    envelope: JsonNode, bot: FeishuBot, context: FeishuContext = NO_CONTEXT
) -> FeishuEvent:
    """Parse an event, or return the reason to ignore it. Never raises, even on hostile input.

    Args:
        envelope: The event.
        bot: The bot's identity.
        context: Data from the API about a message.

    >>> envelope = JsonNode({"header": {"event_type": "im.chat.disbanded_v1"}})
    >>> parse_event(envelope, FeishuBot(open_id="ou_b", name="B")).detail
    'im.chat.disbanded_v1'
    """
    try:
        return _event(envelope, bot, context)
    except _IgnoreEvent as verdict:
        return verdict.ignored
    except UnsupportedContent as error:
        return IgnoredEvent(str(error))


def _event(envelope: JsonNode, bot: FeishuBot, context: FeishuContext) -> FeishuEvent:
    header, event = envelope["header"], envelope["event"]
    kind = header.text("event_type")
    if kind == _MESSAGE:
        return _message(header, event, bot, context)
    meant = (
        parse_button_press(envelope, bot.channel)
        if kind in ("", CARD_ACTION)
        else parse_other_event(kind, header, event, bot.channel)
    )
    if meant is None:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, kind[:80] or "an event without a type")
    return meant


def _message(
    header: JsonNode, event: JsonNode, bot: FeishuBot, context: FeishuContext
) -> InboundMessage:
    message = event["message"]
    sender = _sender(header, event["sender"], bot, context.names)
    message_id, chat = message.text("message_id"), message.text("chat_id")
    if not message_id or not chat:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, "a message without an id or chat")
    private = message.text("chat_type") == "p2p"
    shown = context.page[0] if context.page and is_withheld(message) else message
    content = _content(shown, bot, context)
    is_forwarded = _is_forwarded(shown, sender)
    words, commanded = ("", False) if is_forwarded else _command(content.text, bot)
    mentions = {mention_id(mention) for mention in message.items("mentions")} - {"", "all"}
    mentioned = bot.open_id in mentions
    is_addressed = private or commanded or mentioned
    _check_meant(message, sender, private=private, is_addressed=is_addressed)
    quotes = [quote_message(context.parent, context.names)] if context.parent is not None else []
    if is_forwarded and content.text:
        quotes.append(FeishuContent(text=quotation(content.text, heading=FORWARDED)))
    is_empty = not (words or content.attachments or quotes or message.text("parent_id"))
    return InboundMessage(
        event_id=header.text("event_id") or message_id,
        message_id=message_id,
        key=_key(header, message, bot, private=private),
        reply_target=_reply_target(message),
        sender=sender,
        text=HELP if private and mentioned and is_empty else words,
        quoted="\n\n".join(quote.text for quote in quotes if quote.text),
        is_private=private,
        is_addressed=is_addressed,
        replies_to=_replies_to(message),
        track_replies=not private,
        attachments=(
            *(as_quoted(content.attachments) if is_forwarded else content.attachments),
            *as_quoted(file for quote in quotes for file in quote.attachments),
        ),
        sent_at=message.seconds("create_time"),
        order=message.milliseconds("create_time") or 0,
        mentions_others=bool(mentions) and not mentioned and not is_forwarded,
        is_forwarded=is_forwarded,
        chat_title="" if private else clean_name(context.chat_title),
    )


def _content(message: JsonNode, bot: FeishuBot, context: FeishuContext) -> FeishuContent:
    if message_type(message) == "system":
        raise _IgnoreEvent(Disposition.UNSUPPORTED, "a system message")
    held = context.page[1:]
    return read_message(message, names=context.names, own_id=bot.open_id, held=held)


def _is_forwarded(message: JsonNode, sender: Sender) -> bool:
    """Return whether a person forwarded a message. Only bots write cards, so a person's card is always forwarded."""
    kind = message_type(message)
    return kind == MERGE_FORWARD or (kind == CARD and not sender.is_bot)


def _check_meant(message: JsonNode, sender: Sender, *, private: bool, is_addressed: bool) -> None:
    """Raise _IgnoreEvent for messages that are not for the bot."""
    if sender.is_bot and (private or not is_addressed):
        raise _IgnoreEvent(Disposition.FROM_BOT, "the sender is an app")
    kind = message_type(message)
    is_answer = any(message.text(name) for name in ("parent_id", "root_id", "thread_id"))
    if not (is_addressed or is_answer or kind in _SPOKEN):
        raise _IgnoreEvent(Disposition.UNSUPPORTED, f"a message of type {kind[:40]} for nobody")


def _sender(header: JsonNode, sender: JsonNode, bot: FeishuBot, names: Mapping[str, str]) -> Sender:
    user = sender["sender_id"].text("open_id")
    is_app = sender.text("sender_type") in {"app", "bot"}
    if user == bot.open_id or (is_app and not user):
        raise _IgnoreEvent(Disposition.FROM_BOT, "the sender is an app")
    if not user:
        raise _IgnoreEvent(Disposition.UNSUPPORTED, "a message without a sender")
    kind = sender_kind(header.text("tenant_key"), sender.text("tenant_key"))
    name = clean_name(names.get(user, ""))
    return Sender(user_id=user, name=name, is_bot=is_app, kind=kind)


def _key(header: JsonNode, message: JsonNode, bot: FeishuBot, *, private: bool) -> ConversationKey:
    """Return the conversation: a topic, a chain of replies in a group, or a private chat."""
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
    """Return where the answer goes.

    To stay in a topic, the answer must reply to this message, or to the topic's first message if this one is gone.
    """
    thread = message.text("thread_id")
    return ReplyTarget(
        chat=message.text("chat_id"),
        thread=thread,
        reply_to=message.text("message_id"),
        thread_root=message.text("root_id") if thread else "",
    )


def _replies_to(message: JsonNode) -> tuple[str, ...]:
    """Return the messages that this one replies to. Empty in a topic, because the topic determines the conversation."""
    if message.text("thread_id"):
        return ()
    ids = (message.text("parent_id"), message.text("root_id"))
    return tuple(dict.fromkeys(name for name in ids if name))


def _command(text: str, bot: FeishuBot) -> tuple[str, bool]:
    """Remove the suffix that names the bot from a command. Return the text, and whether there was a suffix.

    >>> _command("/help@parley me", FeishuBot(open_id="ou_b", name="Parley"))
    ('/help me', True)
    """
    match = _COMMAND_SUFFIX.match(text)
    if match and match[2].casefold() == bot.name.casefold():
        return match[1] + text[match.end() :], True
    return text, False
