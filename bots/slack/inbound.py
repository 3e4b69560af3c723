"""Converts Slack events and slash commands to inbound messages, or to the reason to ignore them. Pure.

Payloads are untrusted, so every field is checked before use, and nothing here raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from bots.common.events import HELP, IgnoredEvent
from bots.slack.edits import is_tombstone, parse_deletion, parse_edit
from bots.slack.mentions import plain, take_bot
from bots.slack.message_reader import bot_name, read_message
from bots.slack.mrkdwn_parser import parse_mrkdwn
from bots.slack.payload import (
    SlackIdentity,
    as_list,
    as_mapping,
    as_str,
    is_private,
    parse_order,
    parse_timestamp,
    workspace_of,
)
from bus.commands import misspelled_command, parse_command
from bus.messages import (
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    ReplyTarget,
    Sender,
)
from bus.platform import Disposition

USER_SUBTYPES = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes of messages that people write. All other subtypes report changes."""

_OWN = "own message"

_CONVERSATION_COMMANDS = frozenset({"bootstrap", "export", "new", "retry", "status", "undo"})
"""Commands that concern a conversation. The other commands concern the chat as a whole, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChatOpened:
    """A person opened the private chat with an agent, or a new thread of it. `thread` may be ""."""

    chat: str
    thread: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionStopped:
    """A person pressed Slack's own stop button for an agent.

    Attributes:
        message_ids: The growing messages that Slack stopped.
        stop_command: A /stop by that person, for turns without such a message.
    """

    message_ids: tuple[str, ...]
    stop_command: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRevoked:
    """The app lost its rights, so the token must be checked again."""

    event_type: Literal["app_uninstalled", "tokens_revoked"]


SlackEvent: TypeAlias = (
    InboundMessage
    | MessageEdit
    | MessageDeletion
    | AgentChatOpened
    | AgentSessionStopped
    | AuthorizationRevoked
    | IgnoredEvent
)


def parse_event(body: Mapping[str, Any], me: SlackIdentity) -> SlackEvent:  # noqa: PLR0911 - one return per kind
    """Convert an Events API payload.

    A message that mentions the bot in a channel arrives as two events with different IDs. Both have the same key,
    message ID and `is_addressed`, so only the first to arrive is used.
    """
    event = as_mapping(body.get("event"))
    match as_str(event.get("type")):
        case "app_mention" | "message":
            return _message_event(body, event, me)
        case "assistant_thread_started":
            return _chat_opened(as_mapping(event.get("assistant_thread")))
        case "app_home_opened" if event.get("tab") == "messages":
            return _chat_opened({"channel_id": event.get("channel"), "user_id": event.get("user")})
        case "agent_session_stopped":
            return _session_stopped(body, event, me)
        case "app_uninstalled":
            return AuthorizationRevoked(event_type="app_uninstalled")
        case "tokens_revoked":
            return _tokens_revoked(as_mapping(event.get("tokens")), me)
        case kind:
            return IgnoredEvent(f"event {kind}")


def parse_slash_command(
    body: Mapping[str, Any], me: SlackIdentity
) -> InboundMessage | IgnoredEvent:
    """Convert a slash command. The text after `/parley` is the command. Without text, it asks for help.

    In a channel, only the command's author sees the answer, so each author has a separate conversation.
    """
    chat, user = as_str(body.get("channel_id")), as_str(body.get("user_id"))
    trigger = as_str(body.get("trigger_id"))
    if not (chat and user and trigger):
        return IgnoredEvent("slash command without channel, user or trigger")
    typed, _ = take_bot(parse_mrkdwn(as_str(body.get("text"))), me.user_id)
    text = typed if typed.startswith("/") else f"/{typed or 'help'}"
    command = parse_command(text)
    if command is None and not misspelled_command(text):
        text = typed  # The text is a question, so its first word must not become a command.
    is_about_chat = command is not None and command.name not in _CONVERSATION_COMMANDS
    return InboundMessage(
        event_id=f"slash:{trigger}",
        message_id="",
        key=ConversationKey(
            channel=me.channel,
            workspace=workspace_of(body, me),
            chat=chat,
            topic="" if is_private(chat) or is_about_chat else f"@{user}",
        ),
        reply_target=ReplyTarget(
            chat=chat,
            response_url=as_str(body.get("response_url")),
            user=me.recipient(user),
        ),
        sender=Sender(user_id=user, name=plain(as_str(body.get("user_name")))),
        text=text,
        is_private=is_private(chat),
        is_addressed=True,
    )


def _message_event(
    body: Mapping[str, Any], event: Mapping[str, Any], me: SlackIdentity
) -> SlackEvent:
    match as_str(event.get("subtype")):
        case "message_changed":
            return _message_edit(body, event, me)
        case "message_deleted":
            return _message_change(body, parse_deletion(event), me)
        case subtype:
            bot = _bot_author(event, me)
            if subtype in USER_SUBTYPES and bot != _OWN:
                message = parse_message(body, event, me)
                return _mention_by_bot(message, bot) if bot else message
            if bot:
                return IgnoredEvent(bot, Disposition.FROM_BOT)
            return IgnoredEvent(f"message {subtype}")


def _message_edit(
    body: Mapping[str, Any], event: Mapping[str, Any], me: SlackIdentity
) -> MessageEdit | MessageDeletion | IgnoredEvent:
    now = as_mapping(event.get("message"))
    if (bot := _bot_author(now, me)) and not is_tombstone(now):
        # These are mostly the bot's own growing answers.
        return IgnoredEvent(bot, Disposition.FROM_BOT)
    return _message_change(body, parse_edit(event, me), me)


def _mention_by_bot(message: InboundMessage | IgnoredEvent, bot: str) -> SlackEvent:
    """Return another bot's mention of this bot. Other messages of bots are ignored."""
    if isinstance(message, IgnoredEvent) or message.is_private or not message.is_addressed:
        return IgnoredEvent(bot, Disposition.FROM_BOT)
    return replace(message, sender=replace(message.sender, is_bot=True))


def _message_change(
    body: Mapping[str, Any], change: tuple[Mapping[str, Any], bool] | None, me: SlackIdentity
) -> MessageEdit | MessageDeletion | IgnoredEvent:
    """Convert a change of a message. Ignores changes that people do not notice."""
    if change is None:
        return IgnoredEvent("message_changed without a new text")
    message, is_gone = change
    chat, ts = as_str(message.get("channel")), as_str(message.get("ts"))
    if ignored := _unusable(message, me):
        return ignored
    event_id = as_str(body.get("event_id")) or f"{chat}:{ts}:{is_gone}"
    key = _key(body, message, me)
    now = None if is_gone else parse_message(body, message, me)
    if isinstance(now, InboundMessage) and not (now.prompt or now.attachments):
        now = IgnoredEvent(reason=Disposition.EMPTY)
    if isinstance(now, IgnoredEvent):
        return now
    if now is None:
        return MessageDeletion(event_id=event_id, key=key, message_id=ts)
    edited_at = parse_timestamp(as_str(as_mapping(message.get("edited")).get("ts"))) or 0.0
    edited = replace(now, edited_at=edited_at)
    return MessageEdit(event_id=event_id, key=key, message_id=ts, edited=edited)


def answers_bot(body: Mapping[str, Any], me: SlackIdentity) -> bool:
    """Return whether a message is a reply in a thread below one of the bot's messages."""
    return bool(me.user_id) and as_mapping(body.get("event")).get("parent_user_id") == me.user_id


def _unusable(message: Mapping[str, Any], me: SlackIdentity) -> IgnoredEvent | None:
    if robot := _bot_author(message, me):
        return IgnoredEvent(robot, Disposition.FROM_BOT)
    if not (as_str(message.get("channel")) and as_str(message.get("ts"))):
        return IgnoredEvent("a change without channel or time")
    return None


def parse_message(
    body: Mapping[str, Any], event: Mapping[str, Any], me: SlackIdentity
) -> InboundMessage | IgnoredEvent:
    """Convert a person's message."""
    chat, ts = as_str(event.get("channel")), as_str(event.get("ts"))
    user, thread = as_str(event.get("user")), as_str(event.get("thread_ts"))
    if not (chat and ts and user):
        return IgnoredEvent("message without channel, time or user")
    content = read_message(event, me)
    text = content.text
    key = _key(body, event, me)
    private = is_private(chat, as_str(event.get("channel_type")))
    mentioned = content.mentions_bot or event.get("type") == "app_mention"
    if not (text or content.quoted or content.files):
        if not mentioned:
            return IgnoredEvent(reason=Disposition.EMPTY)
        # In a thread, a bare mention may refer to earlier messages there.
        text = HELP if private else ""
    # In an agent's chat, every message begins a thread, but all belong to one conversation.
    beside = ts if me.is_agent else ""
    return InboundMessage(
        event_id=as_str(body.get("event_id")) or f"{chat}:{ts}",
        message_id=ts,
        key=key,
        reply_target=ReplyTarget(
            chat=chat,
            thread=(thread or beside) if private else key.topic,
            reply_to=ts,
            user=me.recipient(user, _sender_team(event)),
        ),
        sender=Sender(user_id=user, name=_display_name(event)),
        text=text,
        quoted=content.quoted,
        is_private=private,
        is_addressed=private or mentioned,
        replies_to=(thread,) if thread and thread != ts and not private else (),
        track_replies=not private,
        attachments=content.files,
        sent_at=parse_timestamp(ts),
        order=parse_order(ts),
        mentions_others=content.mentions_people and not mentioned,
        is_forwarded=content.is_forwarded,
        is_cut=content.is_cut,
    )


def _key(body: Mapping[str, Any], event: Mapping[str, Any], me: SlackIdentity) -> ConversationKey:
    chat = as_str(event.get("channel"))
    root = as_str(event.get("thread_ts")) or as_str(event.get("ts"))
    return ConversationKey(
        channel=me.channel,
        workspace=workspace_of(body, me),
        chat=chat,
        topic="" if is_private(chat, as_str(event.get("channel_type"))) else root,
    )


def _sender_team(event: Mapping[str, Any]) -> str:
    return as_str(event.get("user_team")) or as_str(event.get("team"))


def _chat_opened(thread: Mapping[str, Any]) -> AgentChatOpened | IgnoredEvent:
    chat, user = as_str(thread.get("channel_id")), as_str(thread.get("user_id"))
    if not chat:
        return IgnoredEvent("an opened chat without a channel")
    return AgentChatOpened(chat=chat, thread=as_str(thread.get("thread_ts")), user=user)


def _session_stopped(
    body: Mapping[str, Any], event: Mapping[str, Any], me: SlackIdentity
) -> AgentSessionStopped | IgnoredEvent:
    chat, user = as_str(event.get("channel")), as_str(event.get("user"))
    thread = as_str(event.get("thread_ts"))
    private = is_private(chat)
    if not (chat and user and (thread or private)):
        return IgnoredEvent("a stop event without channel, thread or user")
    stop = InboundMessage(
        event_id=as_str(body.get("event_id")) or f"stop:{event.get('event_ts')}",
        message_id="",
        key=ConversationKey(
            channel=me.channel,
            workspace=workspace_of(body, me),
            chat=chat,
            topic="" if private else thread,
        ),
        reply_target=ReplyTarget(chat=chat, thread=thread, user=me.recipient(user)),
        sender=Sender(user_id=user),
        text="/stop",
        is_private=private,
        is_addressed=True,
    )
    streams = tuple(map(as_str, as_list(event.get("streaming_message_ts"))))
    return AgentSessionStopped(message_ids=streams, stop_command=stop)


def _tokens_revoked(
    tokens: Mapping[str, Any], me: SlackIdentity
) -> AuthorizationRevoked | IgnoredEvent:
    bots = as_list(tokens.get("bot"))
    if bots and me.user_id and me.user_id not in bots:
        return IgnoredEvent("tokens of others were revoked")
    return AuthorizationRevoked(event_type="tokens_revoked")


def _bot_author(event: Mapping[str, Any], me: SlackIdentity) -> str:
    """Return the name of the bot that wrote a message; "" = a person wrote it."""
    user, bot = as_str(event.get("user")), as_str(event.get("bot_id"))
    if (user and user == me.user_id) or (bot and bot == me.bot_id):
        return _OWN
    if bot or event.get("subtype") == "bot_message" or user == "USLACKBOT":
        return f"bot {bot or user or 'unknown'}"
    return ""


def _display_name(event: Mapping[str, Any]) -> str:
    profile = as_mapping(event.get("user_profile"))
    names = (profile.get("display_name"), profile.get("real_name"))
    return next(filter(None, map(plain, map(as_str, names))), bot_name(event))
