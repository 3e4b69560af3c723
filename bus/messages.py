"""What travels on the bus: frozen, typed, encoded in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NewType

from pydantic import AliasChoices, Field, TypeAdapter

from bus.locales import messages_for
from bus.locales.catalog import Messages
from store.conversations import ConversationKey

__all__ = [
    "Attachment",
    "Button",
    "ButtonPress",
    "ConversationKey",
    "InboundMessage",
    "MessageDeletion",
    "MessageEdit",
    "MessageId",
    "OutboundEdit",
    "OutboundFile",
    "OutboundMessage",
    "OutboundRemoval",
    "OutboundText",
    "PressResponse",
    "ReplyTarget",
    "RewindPoint",
    "Sender",
    "SenderKind",
    "chat_of",
    "decode_inbound",
    "decode_outbound",
    "decode_reply_target",
    "encode_inbound",
    "encode_outbound",
    "platform_message_id",
]

SenderKind = Literal["member", "guest", "external", "unknown"]
"""Whether a sender belongs to the organization that the bot serves.

`member`: yes. `guest`: a guest account in it (Slack's single- and multi-channel guests). `external`: an account of
another organization (Slack Connect, Feishu external users). `unknown`: the platform does not say (Telegram).
"""


def _renamed(name: str, old_name: str) -> Any:  # noqa: ANN401 - pydantic's own type of Field()
    """Let rows that were stored under a field's old name decode."""
    return Field(validation_alias=AliasChoices(name, old_name))


MessageId = NewType("MessageId", str)
"""A platform's id of a message, opaque outside its adapter.

Up to the first blank it is what replies to the message and presses of its buttons call it; what an adapter needs
besides to find the message again may follow.
"""


def platform_message_id(message: MessageId) -> str:
    """Return what replies and presses call a message.

    >>> platform_message_id(MessageId("om_1 7355")), platform_message_id(MessageId("om_1"))
    ('om_1', 'om_1')
    """
    return message.partition(" ")[0]


def chat_of(key: ConversationKey) -> ConversationKey:
    """Return the key of a whole chat, for settings and records that all its topics share.

    >>> chat_of(ConversationKey(channel="slack", workspace="T", chat="C", topic="1.2")).topic
    ''
    """
    return replace(key, topic="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTarget:
    """Where an answer goes, in the platform's own ids; only its adapter reads them.

    Attributes:
        chat: Slack channel, Telegram chat, Feishu chat, terminal session.
        thread: Slack thread root, Telegram forum topic, Feishu topic; "" for none.
        reply_to: The message that is answered (replied to, reacted on); "" for none.
        callback: A one-off answer address (Slack's response_url); "" for none.
        user: Who is answered, where the platform wants to know that (Slack's streams); "" for nobody.
        language: What the bot speaks there (a key of `bus.locales.LANGUAGES`), set by the bus; no part of where it is.
        command_prefix: What a command begins with there, set by the bus likewise.
    """

    chat: str
    thread: str = ""
    reply_to: str = ""
    callback: str = ""
    user: str = ""
    language: str = field(default="", compare=False)
    command_prefix: Annotated[str, _renamed("command_prefix", "command_sign")] = field(
        default="/", compare=False
    )

    @property
    def texts(self) -> Messages:
        """What the bot says there."""
        return messages_for(self.language, self.command_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who wrote.

    Attributes:
        user_id: The platform's stable ID.
        kind: Whether they belong to the organization; `external_policy` decides on guests and external people.
    """

    user_id: str
    name: str = ""
    is_bot: bool = False
    kind: SenderKind = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that came with a message. `ref` is what the adapter needs to download it; opaque elsewhere."""

    name: str
    mime: str = "application/octet-stream"
    size_bytes: int | None = None
    kind: Literal["file", "image", "audio", "video"] = "file"
    ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """What a person said last in a thread; with all that came after it, it can be taken back.

    Attributes:
        text: The person's own words.
        files: The files that came with it, as the thread's uploads name them.
        earlier_ids: Ids under which it may stand in the thread instead: attempts that failed.
        allow_duplicate: Whether it may be said twice where the server takes nothing back.
    """

    thread_id: str
    message_id: str
    text: str
    files: tuple[Mapping[str, Any], ...] = ()
    earlier_ids: Annotated[tuple[str, ...], _renamed("earlier_ids", "earlier")] = ()
    allow_duplicate: Annotated[bool, _renamed("allow_duplicate", "may_stay")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """One platform message, as the adapters' pure `inbound` modules make it.

    Attributes:
        event_id: The platform's id of the delivery, stable over redeliveries.
        message_id: The platform's id of the message, unique within its chat; "" where there is none.
        key: The conversation it belongs to.
        reply_target: Where its answers go.
        text: What was said: mentions of the bot and `@bot` suffixes of commands removed, platform escapes undone.
        private: Whether only the sender and the bot are in the chat.
        addressed: Whether the bot was meant: private chat, mention, command to it, reply to its message.
        replies_to: Messages that this one answers, nearest first; a known one decides the topic.
        track_replies: Whether replies to this message must find this conversation (reply-chain platforms).
        sent_at: When it was sent by the platform's clock (Unix seconds), if told.
        rewind_point: What the command takes back, noted before it does: a restart takes back no other.
        language: The sender's language as the platform tells it (BCP 47: "zh-hans"); "" if it does not.
        original_chat: The id by which the room is remembered, where its chat had another id before; "" = the chat's.
        album: What messages have in common that were sent together, one for each file; "" for one by itself.
        answers_row: The inbox row whose question it answers by a button; 0 = it was written.
        stopped: Whether its turn was ended by a button, or the message deleted: a restart does not take it up.
        edit_count: How often it was edited since it was accepted; `text` is its present one.
    """

    event_id: str
    message_id: str
    key: ConversationKey
    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]
    sender: Sender
    text: str
    private: bool
    addressed: bool
    replies_to: tuple[str, ...] = ()
    track_replies: Annotated[bool, _renamed("track_replies", "remember")] = False
    attachments: tuple[Attachment, ...] = ()
    sent_at: float | None = None
    rewind_point: Annotated[RewindPoint | None, _renamed("rewind_point", "exchange")] = None
    language: str = ""
    album: str = ""
    original_chat: Annotated[str, _renamed("original_chat", "room")] = ""
    answers_row: Annotated[int, _renamed("answers_row", "answers")] = 0
    stopped: bool = False
    edit_count: Annotated[int, _renamed("edit_count", "edits")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message.

    Attributes:
        label: At most 75 characters (Slack's limit; Telegram's and Feishu's are wider).
        token: What comes back when it is pressed (bus/buttons.py): ASCII, at most 64 bytes (Telegram's limit).
        style: How much it stands out, where the platform can show that.
    """

    label: str
    token: str
    style: Literal["plain", "primary", "danger"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress:
    """A button that somebody pressed, as the adapters' pure `inbound` modules make it.

    Attributes:
        event_id: The platform's id of the press, stable over redeliveries.
        key: The chat in which it was pressed; its topic may be missing.
        reply_target: Where the message with the button stands; `callback` a one-off answer address, if there is one.
        message_id: The message with the button.
        token: The button's own.
        private: Whether only the presser and the bot are in the chat.
        language: As on `InboundMessage`.
    """

    event_id: str
    key: ConversationKey
    reply_target: ReplyTarget
    message_id: str
    token: str
    sender: Sender
    private: bool
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressResponse:
    """What the presser is told at once: Telegram's and Feishu's toast, Slack's ephemeral message.

    Attributes:
        text: At most 200 characters (Telegram's limit); "" = nothing needs to be said.
        urgent: Whether it is a refusal that the presser should not miss.
    """

    text: str = ""
    urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdit:
    """A message that was edited after it was sent, as the adapters' pure `inbound` modules make it.

    Attributes:
        event_id: The platform's ID of the edit, stable across redeliveries.
        key: The chat of the message; its topic may be missing.
        message_id: The `message_id` that its `InboundMessage` had.
        edited: The message as it reads now.
    """

    event_id: str
    key: ConversationKey
    message_id: str
    edited: InboundMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeletion:
    """A message that was deleted (Feishu: recalled) after it was sent. Fields as on `MessageEdit`."""

    event_id: str
    key: ConversationKey
    message_id: str


_FinalStatus = Annotated[Literal["", "ok", "failed"], _renamed("final_status", "closes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundText:
    """One platform message of Markdown, already within the platform's limit.

    Attributes:
        markdown: The model's Markdown; the adapter renders it.
        replaces: Outbox key of the message to edit; "" or a message that is gone = send a new message.
        provisional: A streaming message or notice, sent so that it can be edited; not an answer.
        final_status: Set on the last message of a turn: the done ("ok") or failure indicator to show after it.
        buttons: Buttons under it, where the platform has buttons.
        part: Number of the message within its row; 0 = the first, which is sent with the row's key itself.
        more: Texts of the messages that follow within the row, where the platform needs several.
    """

    kind: Literal["text"] = "text"
    channel: str
    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]
    markdown: str
    replaces: Annotated[str, _renamed("replaces", "edits")] = ""
    provisional: bool = False
    final_status: _FinalStatus = ""
    buttons: tuple[Button, ...] = ()
    part: int = 0
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundFile:
    """A file: one the agent presented, fetched from the gateway when it is sent, or a text of our own.

    Attributes:
        path: Virtual, below /mnt/user-data/outputs; "" for a text of our own.
        content: That text.
        final_status: As on `OutboundText`.
    """

    kind: Literal["file"] = "file"
    channel: str
    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]
    thread_id: str
    path: str
    name: str
    content: str = ""
    final_status: _FinalStatus = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRemoval:
    """Deletes a message of the bot: the progress notice of a finished turn.

    `target_key` is its outbox key; `final_status` as on `OutboundText`.
    """

    kind: Literal["removal"] = "removal"
    channel: str
    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]
    target_key: Annotated[str, _renamed("target_key", "of")]
    final_status: _FinalStatus = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundEdit:
    """Edits a message of the bot and removes its buttons; a message that is gone is not sent again.

    `target_key` is its outbox key, `markdown` its new text; `final_status` as on `OutboundText`.
    """

    kind: Literal["amendment"] = "amendment"
    channel: str
    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]
    target_key: Annotated[str, _renamed("target_key", "of")]
    markdown: str
    final_status: _FinalStatus = ""


OutboundMessage = OutboundText | OutboundFile | OutboundRemoval | OutboundEdit

_INBOUND: TypeAdapter[InboundMessage] = TypeAdapter(InboundMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """The part of an inbound message that is needed to answer it."""

    reply_target: Annotated[ReplyTarget, _renamed("reply_target", "place")]


_ADDRESS: TypeAdapter[_Address] = TypeAdapter(_Address)
_DELIVERY: TypeAdapter[OutboundMessage] = TypeAdapter(OutboundMessage)


def encode_inbound(inbound: InboundMessage) -> str:
    """Return the JSON that the inbox keeps."""
    return _INBOUND.dump_json(inbound).decode()


def decode_inbound(body: str) -> InboundMessage:
    """Return the message of an inbox row."""
    return _INBOUND.validate_json(body)


def decode_reply_target(body: str) -> ReplyTarget | None:
    """Return where the answer to an inbox row goes, also where the rest cannot be decoded; None if that cannot either.

    >>> decode_reply_target('{"reply_target": {"chat": "c"}, "sender": "?"}')
    ReplyTarget(chat='c', thread='', reply_to='', callback='', user='', language='', command_prefix='/')
    >>> decode_reply_target("{")
    """
    try:
        return _ADDRESS.validate_json(body).reply_target
    except ValueError:
        return None


def encode_outbound(delivery: OutboundMessage) -> str:
    """Return the JSON that the outbox keeps."""
    return _DELIVERY.dump_json(delivery).decode()


def decode_outbound(body: str) -> OutboundMessage:
    """Return the delivery of an outbox row."""
    return _DELIVERY.validate_json(body)
