"""The state of a Telegram server: chats, topics, messages, files, and their JSON."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Wire = Any
"""A JSON value."""

_MENTION = re.compile(r"(?<!\w)@[A-Za-z0-9_]{2,32}(?!\w)")
_COMMAND = re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>@])")


def units(text: str) -> int:
    """Return the length in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def detect(text: str) -> list[Json]:
    """Return the entities for mentions and commands that Telegram adds to users' messages."""
    found = [(match, "mention") for match in _MENTION.finditer(text)]
    found += [(match, "bot_command") for match in _COMMAND.finditer(text)]
    return [
        {"type": kind, "offset": units(text[: match.start()]), "length": units(match.group())}
        for match, kind in sorted(found, key=lambda pair: pair[0].start())
    ]


def mentions(text: str, entities: Sequence[Json]) -> list[str]:
    """Return the names in a bot's text that a server turns into mentions. It ignores code and links."""
    taken = [
        (entity["offset"], entity["offset"] + entity["length"])
        for entity in entities
        if entity["type"] in {"code", "pre", "text_link"}
    ]
    found = [
        (match[0], units(text[: match.start()]), units(text[: match.end()]))
        for match in _MENTION.finditer(text)
    ]
    return [
        name
        for name, start, end in found
        if all(end <= low or high <= start for low, high in taken)
    ]


class TelegramApiError(Exception):
    """A refused call, with the Bot API's wording."""

    def __init__(
        self, status: int, description: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters or {}


@dataclass(slots=True, kw_only=True)
class TelegramUpload:
    """An uploaded file."""

    name: str
    content: bytes
    mime: str = "application/octet-stream"


@dataclass(slots=True, kw_only=True)
class TelegramFile:
    """A file on the server. `kind` is the field of Message that carries it: photo, document, voice, ..."""

    file_id: str
    kind: str
    name: str
    content: bytes
    mime: str

    @property
    def path(self) -> str:
        return f"{self.kind}/{self.file_id}"

    def json(self) -> Wire:
        plain: Json = {
            "file_id": self.file_id,
            "file_unique_id": f"u{self.file_id}",
            "file_size": len(self.content),
        }
        match self.kind:
            case "photo":
                small = plain | {"file_id": f"{self.file_id}s", "width": 90, "height": 60}
                return [small, plain | {"width": 1280, "height": 853}]
            case "document":
                return plain | {"file_name": self.name, "mime_type": self.mime}
            case "audio" | "voice":
                return plain | {"duration": 3, "mime_type": self.mime}
            case _:
                return plain | {"duration": 3, "width": 320, "height": 240, "mime_type": self.mime}


@dataclass(slots=True, kw_only=True)
class TelegramMessage:
    """A message with its current content.

    Attributes:
        sender: User or bot ID; 0 = a service message.
        text: Text or caption.
        reply_to: The message it replies to, or None.
        history: Earlier texts, oldest first.
        markup: Rows of buttons below it.
        rich: The blocks of a rich message. `text` is then their text.
        silent: Whether it was sent without a notification.
        service: Field of a service message, such as forum_topic_created.
        extra: Further fields, which are also included in replies to it: a place, a poll, sender_chat.
    """

    message_id: int
    chat_id: int
    sender: int
    by_bot: bool
    text: str = ""
    entities: list[Json] = field(default_factory=list)
    thread: int | None = None
    reply_to: int | None = None
    file: TelegramFile | None = None
    history: list[str] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)
    service: Json = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    markup: list[list[Json]] = field(default_factory=list)
    rich: list[Json] = field(default_factory=list)
    silent: bool = False
    deleted: bool = False
    date: int = field(default_factory=lambda: int(time.time()))


@dataclass(slots=True, kw_only=True)
class ForumTopic:
    thread: int
    name: str
    closed: bool = False


@dataclass(slots=True, kw_only=True)
class TelegramChat:
    """A private chat (positive ID), or a group or supergroup (negative ID), possibly with topics.

    Attributes:
        standings: The results of `getChatMember` by person, without the `user` field. Other people are plain members.
    """

    chat_id: int
    kind: str
    title: str = ""
    forum: bool = False
    topics: dict[int, ForumTopic] = field(default_factory=dict)
    messages: dict[int, TelegramMessage] = field(default_factory=dict)
    last_id: int = 0
    shut: str = ""
    standings: dict[int, Json] = field(default_factory=dict)
    hides_members: bool = False
    moved_to: int | None = None

    def json(self) -> Json:
        if self.kind == "private":
            return {"id": self.chat_id, "type": "private", "first_name": f"User{self.chat_id}"}
        plain: Json = {"id": self.chat_id, "type": self.kind, "title": self.title}
        return plain | ({"is_forum": True} if self.forum else {})

    def add(self, message: TelegramMessage) -> TelegramMessage:
        self.messages[message.message_id] = message
        return message

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def root(self, message_id: int) -> int:
        """Return the first message of a chain of replies."""
        seen = self.messages.get(message_id)
        while seen is not None and seen.reply_to is not None:
            message_id = seen.reply_to
            seen = self.messages.get(message_id)
        return message_id


def user_json(user_id: int, *, name: str = "", is_bot: bool = False, username: str = "") -> Json:
    plain: Json = {"id": user_id, "is_bot": is_bot, "first_name": name or f"User{user_id}"}
    return plain | ({"username": username} if username else {})


def message_json(
    chat: TelegramChat, message: TelegramMessage, sender: Json | None, *, nested: bool = False
) -> Json:
    """Return a message in the form of updates and responses. `nested`: inside another message."""
    body: Json = {
        "message_id": message.message_id,
        "chat": chat.json(),
        "date": message.date,
        **message.service,
    }
    if sender is not None:
        body["from"] = sender
    if message.file is not None:
        body[message.file.kind] = message.file.json()
    if message.text and not message.rich:
        text, entities = ("caption", "caption_entities") if message.file else ("text", "entities")
        body[text] = message.text
        if message.entities:
            body[entities] = message.entities
    body |= _ornaments(message)
    body |= message.extra
    if nested:
        body.pop("reply_to_message", None)
    if message.thread is not None:
        body |= {"message_thread_id": message.thread, "is_topic_message": True}
    elif chat.kind == "supergroup" and message.reply_to is not None and not nested:
        # A plain supergroup also has IDs for reply threads, but they are not topics.
        body["message_thread_id"] = chat.root(message.reply_to)
    return body


def _ornaments(message: TelegramMessage) -> Json:
    body: Json = {}
    if message.markup:
        body["reply_markup"] = {"inline_keyboard": message.markup}
    if message.rich:
        body["rich_message"] = {"blocks": message.rich}
    return body
