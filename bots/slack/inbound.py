"""A Slack event or command becomes what the bus understands, or a reason why not. Pure.

Payloads come from outside: every field is checked before it is used, and nothing here raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bots.slack.attachments import attachments
from bots.slack.changes import deleted, edited
from bots.slack.markup import plain
from bots.slack.payload import (
    CHANNEL,
    Identity,
    Ignored,
    is_private,
    listing,
    mapping,
    seconds,
    string,
    workspace,
)
from bots.text.characters import clean
from bus.messages import Change, ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.platform import Reason

_SPOKEN = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes that are a person saying something; all others report changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Somebody opened the private chat with an agent, or a new thread of it; `thread` may be ""."""

    chat: str
    thread: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Somebody pressed the stop button that Slack itself shows for an agent.

    Attributes:
        streams: The messages that Slack stopped growing.
        command: The same as a /stop of that person, for turns without such a message.
    """

    streams: tuple[str, ...]
    command: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismissed:
    """The app lost its rights: look at the token again."""

    why: Literal["app_uninstalled", "tokens_revoked"]


Found: TypeAlias = InboundMessage | Change | Opened | Halt | Dismissed | Ignored


def event(body: Mapping[str, Any], me: Identity) -> Found:  # noqa: PLR0911 - one return per kind
    """Convert an Events API payload.

    A message that mentions the bot in a channel arrives as two events with ids of their own; both give the
    same key, message id and `addressed`, so that whichever comes first is enough.
    """
    said = mapping(body.get("event"))
    match string(said.get("type")):
        case "app_mention" | "message":
            return _message(body, said, me)
        case "assistant_thread_started":
            return _opened(mapping(said.get("assistant_thread")))
        case "app_home_opened" if said.get("tab") == "messages":
            return _opened({"channel_id": said.get("channel"), "user_id": said.get("user")})
        case "agent_session_stopped":
            return _halt(body, said, me)
        case "app_uninstalled":
            return Dismissed(why="app_uninstalled")
        case "tokens_revoked":
            return _revoked(mapping(said.get("tokens")), me)
        case kind:
            return Ignored(reason=Reason.UNSUPPORTED, detail=f"event {kind}")


def command(body: Mapping[str, Any], me: Identity) -> InboundMessage | Ignored:
    """Convert a slash command: the text behind `/parley` is the command; none asks for help."""
    chat, user = string(body.get("channel_id")), string(body.get("user_id"))
    trigger = string(body.get("trigger_id"))
    if not (chat and user and trigger):
        return Ignored(
            reason=Reason.UNSUPPORTED, detail="slash command without channel, user or trigger"
        )
    text, _ = plain(string(body.get("text")), bot=me.user_id)
    return InboundMessage(
        event_id=f"slash:{trigger}",
        message_id="",
        key=ConversationKey(
            channel=CHANNEL, workspace=string(body.get("team_id")) or me.team_id, chat=chat
        ),
        place=ReplyTarget(chat=chat, callback=string(body.get("response_url"))),
        sender=Sender(user_id=user, name=clean(string(body.get("user_name")))),
        text=text if text.startswith("/") else f"/{text or 'help'}",
        private=is_private(chat),
        addressed=True,
    )


def _message(body: Mapping[str, Any], said: Mapping[str, Any], me: Identity) -> Found:
    match string(said.get("subtype")):
        case "message_changed":
            return _change(body, edited(said), me)
        case "message_deleted":
            return _change(body, deleted(said), me)
        case subtype:
            if robot := _robot(said, me):
                return Ignored(reason=Reason.FROM_BOT, detail=robot)
            if subtype not in _SPOKEN:
                return Ignored(reason=Reason.UNSUPPORTED, detail=f"message {subtype}")
            return spoken(body, said, me)


def _change(
    body: Mapping[str, Any], found: tuple[Mapping[str, Any], bool] | None, me: Identity
) -> Change | Ignored:
    """Convert what became of a message; None = nothing that a person would notice."""
    if found is None:
        return Ignored(reason=Reason.UNSUPPORTED, detail="message_changed without a new text")
    message, is_gone = found
    if robot := _robot(message, me):
        return Ignored(reason=Reason.FROM_BOT, detail=robot)
    chat, ts = string(message.get("channel")), string(message.get("ts"))
    if not (chat and ts):
        return Ignored(reason=Reason.UNSUPPORTED, detail="a change without channel or time")
    now = None if is_gone else spoken(body, message, me)
    if isinstance(now, Ignored):
        return now
    return Change(
        event_id=string(body.get("event_id")) or f"{chat}:{ts}:{is_gone}",
        key=_key(body, message, me),
        message_id=ts,
        edited=now,
    )


def spoken(
    body: Mapping[str, Any], said: Mapping[str, Any], me: Identity
) -> InboundMessage | Ignored:
    """Convert what a person said."""
    chat, ts = string(said.get("channel")), string(said.get("ts"))
    user, thread = string(said.get("user")), string(said.get("thread_ts"))
    if not (chat and ts and user):
        return Ignored(reason=Reason.UNSUPPORTED, detail="message without channel, time or user")
    text, mentioned = plain(string(said.get("text")), bot=me.user_id)
    files = attachments(said.get("files"))
    if not text and not files:
        return Ignored(reason=Reason.EMPTY)
    key = _key(body, said, me)
    private = is_private(chat, string(said.get("channel_type")))
    # In an agent's chat every message begins a thread; they are one conversation all the same.
    beside = ts if me.is_agent else ""
    return InboundMessage(
        event_id=string(body.get("event_id")) or f"{chat}:{ts}",
        message_id=ts,
        key=key,
        place=ReplyTarget(
            chat=chat,
            thread=(thread or beside) if private else key.topic,
            reply_to=ts,
            user=_recipient(said, key.workspace),
        ),
        sender=Sender(user_id=user, name=_name(said)),
        text=text,
        private=private,
        addressed=private or mentioned or said.get("type") == "app_mention",
        replies_to=(thread,) if thread and thread != ts and not private else (),
        remember=not private,
        attachments=files,
        sent_at=seconds(ts),
    )


def _key(body: Mapping[str, Any], said: Mapping[str, Any], me: Identity) -> ConversationKey:
    chat = string(said.get("channel"))
    root = string(said.get("thread_ts")) or string(said.get("ts"))
    return ConversationKey(
        channel=CHANNEL,
        workspace=workspace(body, me),
        chat=chat,
        topic="" if is_private(chat, string(said.get("channel_type"))) else root,
    )


def _recipient(said: Mapping[str, Any], home: str) -> str:
    """Return who is answered: the user, behind `team/` where that is not the bot's own (Slack Connect)."""
    user = string(said.get("user"))
    team = string(said.get("user_team")) or string(said.get("team"))
    return f"{team}/{user}" if team and team != home else user


def _opened(thread: Mapping[str, Any]) -> Opened | Ignored:
    chat, user = string(thread.get("channel_id")), string(thread.get("user_id"))
    if not chat:
        return Ignored(reason=Reason.UNSUPPORTED, detail="something was opened, nowhere")
    return Opened(chat=chat, thread=string(thread.get("thread_ts")), user=user)


def _halt(body: Mapping[str, Any], said: Mapping[str, Any], me: Identity) -> Halt | Ignored:
    chat, user = string(said.get("channel")), string(said.get("user"))
    thread = string(said.get("thread_ts"))
    private = is_private(chat)
    if not (chat and user and (thread or private)):
        return Ignored(reason=Reason.UNSUPPORTED, detail="a stop without channel, thread or user")
    stop = InboundMessage(
        event_id=string(body.get("event_id")) or f"stop:{said.get('event_ts')}",
        message_id="",
        key=ConversationKey(
            channel=CHANNEL,
            workspace=workspace(body, me),
            chat=chat,
            topic="" if private else thread,
        ),
        place=ReplyTarget(chat=chat, thread=thread, user=user),
        sender=Sender(user_id=user),
        text="/stop",
        private=private,
        addressed=True,
    )
    streams = tuple(map(string, listing(said.get("streaming_message_ts"))))
    return Halt(streams=streams, command=stop)


def _revoked(tokens: Mapping[str, Any], me: Identity) -> Dismissed | Ignored:
    bots = listing(tokens.get("bot"))
    if bots and me.user_id and me.user_id not in bots:
        return Ignored(reason=Reason.UNSUPPORTED, detail="tokens of others were revoked")
    return Dismissed(why="tokens_revoked")


def _robot(said: Mapping[str, Any], me: Identity) -> str:
    """Name the bot that wrote, or "" if a person did."""
    user, bot = string(said.get("user")), string(said.get("bot_id"))
    if (user and user == me.user_id) or (bot and bot == me.bot_id):
        return "own message"
    if bot or said.get("subtype") == "bot_message" or user == "USLACKBOT":
        return f"bot {bot or user or 'unknown'}"
    return ""


def _name(said: Mapping[str, Any]) -> str:
    profile = mapping(said.get("user_profile"))
    return clean(string(profile.get("display_name")) or string(profile.get("real_name")))
