"""A Slack event or command becomes an `Inbound`, or a reason why not. Pure.

Payloads come from outside: every field is checked before it is used, and nothing here raises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bots.slack.markup import plain
from bots.text.characters import clean
from bus.messages import Attachment, ConversationKey, Inbound, Place, Sender
from bus.ports import Reason

CHANNEL = "slack"
_SPOKEN = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes that are a person saying something; all others report changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the bot is in its workspace, as auth.test tells."""

    team_id: str
    user_id: str
    bot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Not a message for us, and why."""

    reason: Reason
    detail: str = ""


def event(body: Mapping[str, Any], me: Identity) -> Inbound | Ignored:
    """Convert an Events API payload (`app_mention`, `message`; all others are ignored).

    A message that mentions the bot in a channel arrives as two events with ids of their own; both give the
    same key, message id and `addressed`, so that whichever comes first is enough.
    """
    said = _mapping(body.get("event"))
    kind, subtype = _string(said.get("type")), _string(said.get("subtype"))
    if kind not in {"app_mention", "message"}:
        return Ignored(reason=Reason.UNSUPPORTED, detail=f"event {kind}")
    if robot := _robot(said, me):
        return Ignored(reason=Reason.FROM_BOT, detail=robot)
    if subtype not in _SPOKEN:
        return Ignored(reason=Reason.UNSUPPORTED, detail=f"message {subtype}")
    return _spoken(body, said, me)


def command(body: Mapping[str, Any], me: Identity) -> Inbound | Ignored:
    """Convert a slash command: the text behind `/parley` is the command; none asks for help."""
    chat, user = _string(body.get("channel_id")), _string(body.get("user_id"))
    trigger = _string(body.get("trigger_id"))
    if not (chat and user and trigger):
        return Ignored(
            reason=Reason.UNSUPPORTED, detail="slash command without channel, user or trigger"
        )
    text, _ = plain(_string(body.get("text")), bot=me.user_id)
    return Inbound(
        event_id=f"slash:{trigger}",
        message_id="",
        key=ConversationKey(
            channel=CHANNEL, workspace=_string(body.get("team_id")) or me.team_id, chat=chat
        ),
        place=Place(chat=chat, callback=_string(body.get("response_url"))),
        sender=Sender(user_id=user, name=clean(_string(body.get("user_name")))),
        text=text if text.startswith("/") else f"/{text or 'help'}",
        private=_private(chat, ""),
        addressed=True,
    )


def _spoken(body: Mapping[str, Any], said: Mapping[str, Any], me: Identity) -> Inbound | Ignored:
    chat, ts = _string(said.get("channel")), _string(said.get("ts"))
    user, thread = _string(said.get("user")), _string(said.get("thread_ts"))
    if not (chat and ts and user):
        return Ignored(reason=Reason.UNSUPPORTED, detail="message without channel, time or user")
    text, mentioned = plain(_string(said.get("text")), bot=me.user_id)
    attachments = _attachments(said.get("files"))
    if not text and not attachments:
        return Ignored(reason=Reason.EMPTY)
    private = _private(chat, _string(said.get("channel_type")))
    root = thread or ts
    return Inbound(
        event_id=_string(body.get("event_id")) or f"{chat}:{ts}",
        message_id=ts,
        key=ConversationKey(
            channel=CHANNEL,
            workspace=_workspace(body, me),
            chat=chat,
            topic="" if private else root,
        ),
        place=Place(chat=chat, thread=thread if private else root, reply_to=ts),
        sender=Sender(user_id=user, name=_name(said)),
        text=text,
        private=private,
        addressed=private or mentioned or said.get("type") == "app_mention",
        replies_to=(thread,) if thread and thread != ts and not private else (),
        remember=not private,
        attachments=attachments,
        sent_at=_seconds(ts),
    )


def _robot(said: Mapping[str, Any], me: Identity) -> str:
    """Name the bot that wrote, or "" if a person did."""
    user, bot = _string(said.get("user")), _string(said.get("bot_id"))
    if (user and user == me.user_id) or (bot and bot == me.bot_id):
        return "own message"
    if bot or said.get("subtype") == "bot_message" or user == "USLACKBOT":
        return f"bot {bot or user or 'unknown'}"
    return ""


def _workspace(body: Mapping[str, Any], me: Identity) -> str:
    """Return the team that installed the bot: in a channel shared with another company not the author's."""
    installed = body.get("authorizations")
    first = _mapping(installed[0]) if isinstance(installed, list) and installed else {}
    return _string(first.get("team_id")) or _string(body.get("team_id")) or me.team_id


def _private(chat: str, channel_type: str) -> bool:
    return channel_type == "im" or chat.startswith("D")


def _name(said: Mapping[str, Any]) -> str:
    profile = _mapping(said.get("user_profile"))
    return clean(_string(profile.get("display_name")) or _string(profile.get("real_name")))


def _attachments(files: object) -> tuple[Attachment, ...]:
    found = (_attachment(_mapping(file)) for file in files) if isinstance(files, list) else ()
    return tuple(attachment for attachment in found if attachment)


def _attachment(file: Mapping[str, Any]) -> Attachment | None:
    """Describe a file; `ref` is its id, because addresses expire and shared channels send nothing else."""
    ref, size = _string(file.get("id")), file.get("size")
    if not ref or file.get("mode") in {"tombstone", "hidden_by_limit"}:
        return None
    mime = clean(_string(file.get("mimetype"))) or "application/octet-stream"
    return Attachment(
        name=clean(_string(file.get("name")) or _string(file.get("title"))) or ref,
        mime=mime,
        size_bytes=size if isinstance(size, int) and size >= 0 else None,
        kind=_kind(mime),
        ref=ref,
    )


def _kind(mime: str) -> Literal["file", "image", "audio", "video"]:
    match mime.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "file"


def _seconds(ts: str) -> float | None:
    try:
        return float(ts)
    except ValueError:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
