"""The bus's messages, which are frozen, and their JSON encoding in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType, TypeAlias

from pydantic import Field, TypeAdapter

from bus.locales import messages_for
from bus.locales.en import Messages
from store import conversations

ConversationKey = conversations.ConversationKey
"""Channel, workspace, chat and topic. Adapters import this type from here, because they must not import the store."""

SenderKind = Literal["member", "guest", "external", "unknown"]
"""Whether a sender belongs to the organization that the bot serves.

`member`: yes, or the platform has no organizations (Telegram). `guest`: a guest account in it (Slack's single- and
multi-channel guests). `external`: an account of another organization (Slack Connect, Feishu external users).
`unknown`: the platform did not say.
"""

MessageId = NewType("MessageId", str)
"""A platform's ID of a message, opaque outside its adapter.

The part before the first space is the ID that replies and button presses use. The adapter needs the rest to find the
message.
"""


def platform_message_id(message: MessageId) -> str:
    """Return the part of a message's ID that replies and button presses use.

    >>> platform_message_id(MessageId("om_1 7355")), platform_message_id(MessageId("om_1"))
    ('om_1', 'om_1')
    """
    return message.partition(" ")[0]


def chat_of(key: ConversationKey) -> ConversationKey:
    """Return the key of a whole chat, for data that all its topics share.

    >>> chat_of(ConversationKey(channel="slack", workspace="T", chat="C", topic="1.2")).topic
    ''
    """
    if not key.topic:
        return key
    return ConversationKey(channel=key.channel, workspace=key.workspace, chat=key.chat)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTarget:
    """Where a reply goes, in the platform's own IDs. Only its adapter reads them.

    Attributes:
        chat: Slack channel, Telegram chat, Feishu chat, terminal session.
        thread: Slack thread root, Telegram forum topic, Feishu topic; "" = none.
        reply_to: The message to reply and react to; "" = none.
        thread_root: The message of the thread to reply to if `reply_to` is gone (Feishu); "" = none.
        response_url: A one-time reply address (Slack's response_url); "" = none.
        user: The person to answer, in the form that the platform needs to reach them elsewhere; "" = no one.
        language: The language of the bot's messages there (a key of `bus.locales.LANGUAGES`). The bus sets it.
        command_prefix: The beginning of commands there. The bus sets it.
    """

    chat: str
    thread: str = ""
    reply_to: str = ""
    thread_root: str = ""
    response_url: str = ""
    user: str = ""
    language: str = field(default="", compare=False)
    command_prefix: str = field(default="/", compare=False)

    @property
    def texts(self) -> Messages:
        """The bot's messages in the target's language."""
        return messages_for(self.language, self.command_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The author of a message.

    Attributes:
        user_id: The platform's stable ID.
        kind: Whether they belong to the organization. `external_policy` decides about guests and external people.
    """

    user_id: str
    name: str = ""
    is_bot: bool = False
    kind: SenderKind = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file of an inbound message. Its adapter downloads it by `ref`, which is opaque elsewhere.

    Attributes:
        is_speech: Whether to transcribe it: a voice message, another recording, a video note.
        duration_s: Its length, seconds; None = the platform does not report it, or it is not a recording.
        is_quoted: Whether it belongs to a message that the inbound message forwards or replies to.
    """

    name: str
    mime: str = "application/octet-stream"
    size_bytes: int | None = None
    kind: Literal["file", "image", "audio", "video"] = "file"
    ref: str = ""
    is_speech: bool = False
    duration_s: float | None = None
    is_quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The words of a recording.

    Attributes:
        text: The words; "" = the recording has none.
        language: The language as the source names it ("en", "english", "en-US"); "" = unknown.
        source: The platform or model that transcribed it.
        duration_s: The length of the recording, seconds; None = unknown.
    """

    text: str
    language: str = ""
    source: str
    duration_s: float | None = None


MAX_DURATION_S = 31 * 86_400
"""Longest believable recording, seconds. A longer one is an error of its sender."""


def parse_duration(value: object, *, units_per_s: int = 1) -> float | None:
    """Return the length of a recording in seconds; None if it is no number, negative, or unbelievably long.

    Args:
        value: What the platform or the model server sent.
        units_per_s: 1000 if that is in milliseconds.

    >>> [parse_duration(value, units_per_s=1000) for value in (2500, 0, -1, 10**400, float("nan"), True, "2500")]
    [2.5, 0.0, None, None, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value / units_per_s if 0 <= value <= MAX_DURATION_S * units_per_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """One platform message of a gesture; fields as on `InboundMessage`.

    Attributes:
        at: When it was sent, by the platform's clock, else when it arrived, Unix seconds.
    """

    message_id: str
    order: int = 0
    at: float = 0.0
    text: str = ""
    quoted: str = ""
    attachments: tuple[Attachment, ...] = ()
    is_forwarded: bool = False
    is_cut: bool = False
    album: str = ""
    edited_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindPoint:
    """A message in a thread that can be removed together with everything after it.

    Attributes:
        text: The person's own words.
        files: The message's files, as named in the thread's uploads.
        earlier_ids: Other IDs that the message may have in the thread, from failed attempts.
        allow_duplicate: Whether to repeat the message if the server cannot remove it.
        sender: The author of the message; None = unknown, or the person who repeats it.
    """

    thread_id: str
    message_id: str
    text: str
    files: tuple[Mapping[str, Any], ...] = ()
    earlier_ids: tuple[str, ...] = ()
    allow_duplicate: bool = False
    sender: Sender | None = None


HOOK = "hook"
"""The kind of the origin of an event of another system (bus/hooks)."""

CONSOLE_EVENT = "console:"
"""Prefix of the event IDs of messages that administrators repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message from a platform, as the adapters' pure `inbound` modules create it.

    Attributes:
        event_id: The platform's ID of the event, stable across redeliveries.
        message_id: The platform's ID of the message, unique within its chat; "" = none.
        key: The conversation it belongs to.
        reply_target: Where replies go.
        text: The sender's own words, unescaped, without mentions of the bot and `@bot` suffixes of commands.
        quoted: Words that the sender did not write, as quotations (bots/text/quotations.py): the message that this one
            replies to, forwarded messages, earlier messages of the thread.
        is_private: Whether only the sender and the bot are in the chat.
        is_addressed: Whether it is for the bot: private chat, mention, command to it, reply to its message.
        replies_to: Messages that this one replies to, nearest first. The first known one determines the topic.
        track_replies: Whether replies to this message belong to its conversation (platforms with reply chains).
        sent_at: When it was sent, by the platform's clock (Unix seconds), if known.
        rewind_point: The message that the command removes. It is stored in advance, so that a resumed command cannot
            remove a different message.
        language: The sender's language according to the platform (BCP 47: "zh-hans"); "" = unknown.
        original_chat: The first ID of a migrated chat, under which its memory is stored; "" = not migrated.
        timezone: The sender's time zone according to the platform (IANA: "Europe/Berlin"); "" = unknown.
        album: The common ID of messages that were sent together, one for each file; "" = none.
        order: The platform's order of a chat's messages (Telegram's number, Slack's and Feishu's time); 0 = unknown.
        is_bare_mention: Whether it only mentions the bot, without words. `text` then asks for help.
        mentions_others: Whether its own words mention people or groups of people, and not the bot.
        is_forwarded: Whether it is a forwarded message. More may follow it.
        is_cut: Whether the text is as long as the platform's clients allow, so that the rest of a paste may follow.
        parts: The messages of its gesture, in order, if there are several (bus/inbound/gestures.py). `text`, `quoted`
            and `attachments` combine them.
        part_of: The inbox row of the gesture that this message was joined to; 0 = none.
        chat_title: The name of the group or channel; "" = a private chat, or unknown.
        topic_title: The name of the forum topic; "" = none, or unknown.
        answers_row: The inbox row whose question a button press answers with it; 0 = a person wrote it.
        is_stopped: Whether a button stopped its turn, or the message was deleted (`is_deleted`). It will not be
            resumed.
        is_stopped_by_operator: Whether it was stopped in the console or over the API, so that the chat is notified.
        edit_count: Number of edits since it was accepted. `text` is the current text.
        edited_at: When it was last edited, by the platform's clock (Unix seconds); 0 = never, or unknown.
        origin: What sent it in the sender's name: "schedule:ID" or "hook:NAME"; "" = a person.
        hook_event: The kind of a hook's event: "push"; "" = its sender does not say, or it is not from a hook.
    """

    event_id: str
    message_id: str
    key: ConversationKey
    reply_target: ReplyTarget
    sender: Sender
    text: str
    quoted: str = ""
    is_private: bool
    is_addressed: bool
    replies_to: tuple[str, ...] = ()
    track_replies: bool = False
    attachments: tuple[Attachment, ...] = ()
    sent_at: float | None = None
    rewind_point: RewindPoint | None = None
    language: str = ""
    timezone: str = ""
    album: str = ""
    order: int = 0
    is_bare_mention: bool = False
    mentions_others: bool = False
    is_forwarded: bool = False
    is_cut: bool = False
    parts: tuple[MessagePart, ...] = ()
    part_of: int = 0
    chat_title: str = ""
    topic_title: str = ""
    original_chat: str = ""
    answers_row: int = 0
    is_stopped: bool = False
    is_stopped_by_operator: bool = False
    is_deleted: bool = False
    edit_count: int = 0
    edited_at: float = 0.0
    origin: str = ""
    hook_event: str = ""

    @property
    def is_from_console(self) -> bool:
        """Whether an administrator repeated it."""
        return self.event_id.startswith(CONSOLE_EVENT)

    @property
    def origin_kind(self) -> str:
        """The kind of `origin`: `schedule`, `hook`, or "" = a person."""
        return self.origin.partition(":")[0]

    @property
    def chat_type(self) -> Literal["private", "group"]:
        """The kind of chat for the agent: whether other people read and write there."""
        return "private" if self.is_private else "group"

    @property
    def may_be_declined(self) -> bool:
        """Whether the agent may stay silent, because people may have said it to each other or no one wrote it."""
        return bool(self.origin) or self.is_overheard

    @property
    def is_overheard(self) -> bool:
        """Whether people may have said it to each other."""
        return not (self.is_private or self.is_addressed or self.answers_row or self.origin)

    @property
    def author(self) -> Sender:
        """The author of the words for the agent: the original author of a repeated message, else the sender."""
        return (self.rewind_point and self.rewind_point.sender) or self.sender

    @property
    def prompt(self) -> str:
        """The text for the agent: the sender's own words, then what they quote."""
        return prompt_of(self.text, self.quoted)


def prompt_of(words: str, quoted: str) -> str:
    r"""Return the text for the agent: someone's own words, then what they quote.

    >>> prompt_of("Why?", "> It rains."), prompt_of("Why?", "")
    ('Why?\n\n> It rains.', 'Why?')
    """
    return f"{words}\n\n{quoted}" if words and quoted else words or quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button under a message.

    Attributes:
        label: At most 75 characters (Slack's limit, which is the lowest).
        token: What a press returns (bus/buttons.py): ASCII, at most 64 bytes (Telegram's limit).
        style: Its emphasis on platforms that support it.
    """

    label: str
    token: str
    style: Literal["plain", "primary", "danger"] = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStep:
    """A finished tool call of a turn, for platforms that show tool calls permanently.

    Attributes:
        id: The call's ID.
        title: The tool and the subject of the call, on one line.
        arguments: Its arguments as `name: value` lines, secrets redacted; at most 4,000 characters.
        result: The beginning of its result; at most 4,000 characters.
        failed: Whether it failed.
    """

    id: str
    title: str
    arguments: str
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress:
    """A button press, as the adapters' pure `inbound` modules create it.

    Attributes:
        event_id: The platform's ID of the press, stable across redeliveries.
        key: The chat of the press. The topic may be missing.
        reply_target: The place of the message with the button. `response_url` is a one-time reply address, if there is
            one.
        message_id: The message with the button.
        token: The button's token.
        is_private: Whether only the presser and the bot are in the chat.
        language: As on `InboundMessage`.
    """

    event_id: str
    key: ConversationKey
    reply_target: ReplyTarget
    message_id: str
    token: str
    sender: Sender
    is_private: bool
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressResponse:
    """The immediate response to a press: Telegram's and Feishu's toast, Slack's ephemeral message.

    Attributes:
        text: At most 200 characters (Telegram's limit); "" = no response needed.
        urgent: Whether the presser should notice it, such as a refusal.
    """

    text: str = ""
    urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdit:
    """A message that was edited after it was sent, as the adapters' pure `inbound` modules create it.

    Attributes:
        event_id: The platform's ID of the edit, stable across redeliveries.
        key: The chat of the message. The topic may be missing.
        message_id: The `message_id` that its `InboundMessage` had.
        edited: The message after the edit.
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


MovedTo: TypeAlias = Literal["", "chat", "private"]

_FinalStatus = Literal["", "ok", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundText:
    """One Markdown message within the platform's limit.

    Attributes:
        markdown: The model's Markdown, which the adapter renders.
        replaces: Outbox key of the message to edit. If it is "" or the message is gone, a new message is sent.
        provisional: Whether it is a streaming message or notice, which is edited later.
        final_status: On the last message of a turn: the done ("ok") or failure indicator to show after it.
        buttons: Its buttons, on platforms with buttons.
        part: Number of the message within its row; 0 = the first one, which is sent with the row's own key.
        more: Texts of the row's further messages, if the platform needs several.
        uncertain: Whether an earlier message of the row may have been sent twice or not at all.
        moved_to: Where it goes instead if the place of the question is gone; "" = it was not moved.
        begins_topic: Whether replies to it form a new topic, if it is sent to a group outside of topics.
        author: The person who wrote it as the bot; "" = no person did.
    """

    kind: Literal["text"] = "text"
    channel: str
    reply_target: ReplyTarget
    markdown: str
    replaces: str = ""
    provisional: bool = False
    final_status: _FinalStatus = ""
    buttons: tuple[Button, ...] = ()
    part: int = 0
    more: tuple[str, ...] = ()
    uncertain: bool = False
    moved_to: MovedTo = ""
    begins_topic: bool = False
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundFile:
    """A file: presented by the agent and fetched from the gateway when sent, a text, or a stored file.

    Attributes:
        path: Virtual path below /mnt/user-data/outputs; "" = not a file that the agent presented.
        content: A text of the bot.
        file_id: A file of a notification, which the journal stores (store/outbox_files.py); `mime` is its type.
        uncertain: Whether it may have arrived in the original place.
        final_status, moved_to, begins_topic: As on `OutboundText`.
    """

    kind: Literal["file"] = "file"
    channel: str
    reply_target: ReplyTarget
    thread_id: str
    path: str
    name: str
    content: str = ""
    file_id: str = ""
    mime: str = ""
    final_status: _FinalStatus = ""
    uncertain: bool = False
    moved_to: MovedTo = ""
    begins_topic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRemoval:
    """Deletes a message of the bot: a progress notice or an unneeded streaming message."""

    kind: Literal["removal"] = "removal"
    channel: str
    reply_target: ReplyTarget
    target_key: str
    final_status: _FinalStatus = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundEdit:
    """Edits a message of the bot and replaces its buttons. A deleted message is not sent again.

    `target_key` is its outbox key, and `markdown` its new text. `final_status` is as on `OutboundText`.
    """

    kind: Literal["edit"] = "edit"
    channel: str
    reply_target: ReplyTarget
    target_key: str
    markdown: str
    final_status: _FinalStatus = ""
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundNote:
    """A plain text in small type, below the message to which `reply_target` replies. `final_status`: `OutboundText`."""

    kind: Literal["note"] = "note"
    channel: str
    reply_target: ReplyTarget
    text: str
    final_status: _FinalStatus = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundIndicator:
    """Shows the done (`ok`) or failure indicator of the message to which `reply_target` replies.

    No other row waits for it. Its row is deleted once it has been shown or has failed.
    """

    kind: Literal["indicator"] = "indicator"
    channel: str
    reply_target: ReplyTarget
    ok: bool


OutboundMessage = OutboundText | OutboundFile | OutboundRemoval | OutboundEdit | OutboundNote
"""The content to send, edit or delete."""

_INBOUND: TypeAdapter[InboundMessage] = TypeAdapter(InboundMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """The part of an inbound message that is needed to answer it."""

    reply_target: ReplyTarget


_ADDRESS: TypeAdapter[_Address] = TypeAdapter(_Address)
# With a discriminator, decoding takes 3 us instead of 15.
_DELIVERY: TypeAdapter[OutboundMessage | OutboundIndicator] = TypeAdapter(
    Annotated[OutboundMessage | OutboundIndicator, Field(discriminator="kind")]
)


def encode_inbound(inbound: InboundMessage) -> str:
    """Return the JSON of a message for the inbox."""
    return _INBOUND.dump_json(inbound).decode()


def decode_inbound(body: str) -> InboundMessage:
    """Return the message of an inbox row."""
    return _INBOUND.validate_json(body)


def decode_reply_target(body: str) -> ReplyTarget | None:
    """Return where the answer to an inbox row goes; None if that cannot be decoded. The rest of the row may be damaged.

    >>> decode_reply_target('{"reply_target": {"chat": "c"}, "sender": "?"}') == ReplyTarget(chat="c")
    True
    >>> decode_reply_target("{")
    """
    try:
        return _ADDRESS.validate_json(body).reply_target
    except ValueError:
        return None


def encode_outbound(delivery: OutboundMessage | OutboundIndicator) -> str:
    """Return the JSON of a message for the outbox."""
    return _DELIVERY.dump_json(delivery).decode()


def decode_outbound(body: str) -> OutboundMessage | OutboundIndicator:
    """Return the message of an outbox row."""
    return _DELIVERY.validate_json(body)
