"""Reads Feishu messages: converts any message to Markdown and files. Pure.

It reads the messages in events (`im.message.receive_v1`) and the items of `GET im/v1/messages/:id`, which are quoted
messages, forwarded messages, and other bots' cards.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

from bots.feishu.card_text import card_markdown, is_card_withheld
from bots.feishu.feishu_markdown import named, utc_minute
from bots.feishu.json_node import JsonNode, parse_json
from bots.feishu.people import SOMEONE, People
from bots.feishu.posts import post_body, post_markdown, post_nodes, post_pictures
from bots.text.quotations import FORWARDED
from bus.characters import clean
from bus.messages import Attachment, parse_duration

Kind = Literal["file", "image", "audio", "video"]

_OFFICE = "application/vnd.openxmlformats-officedocument"
_MIMES: Mapping[str, str] = {
    ".csv": "text/csv", ".doc": "application/msword", ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".gif": "image/gif", ".htm": "text/html", ".html": "text/html", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
    ".json": "application/json", ".md": "text/markdown", ".mov": "video/quicktime", ".mp3": "audio/mpeg",
    ".mp4": "video/mp4", ".opus": "audio/ogg", ".pdf": "application/pdf", ".png": "image/png",
    ".ppt": "application/vnd.ms-powerpoint", ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".svg": "image/svg+xml", ".txt": "text/plain", ".wav": "audio/wav", ".webp": "image/webp",
    ".xls": "application/vnd.ms-excel", ".xlsx": f"{_OFFICE}.spreadsheetml.sheet", ".xml": "application/xml",
    ".zip": "application/zip",
}  # fmt: skip
"""MIME types by suffix. Used instead of `mimetypes`, because its results depend on files of the machine."""
_PICTURE = "image.png"
"""Name of pictures, which have no name or type of their own. The platform stores most as PNG or JPEG."""

MERGE_FORWARD = "merge_forward"
"""The type of a message that contains other messages."""

CARD = "interactive"

FORWARDED_NAME = "forwarded-messages.md"
"""Name of the file for forwarded messages that are too long for the prompt."""

FORWARDED_REF = "forwarded/"
"""Prefix of the reference to this file. The ID of the message that contains the forwarded messages follows."""

MAX_FORWARDED_CHARS = 8_000
"""Maximum length of forwarded messages in the prompt, about 2,000 tokens. Longer ones become a file."""

_PAUSE_MS = 5 * 60_000
"""Pause after which forwarded messages show the time again, milliseconds."""

_MAX_LEVELS = 10
"""Maximum nesting of forwarded messages to read. Deeper messages are dropped."""

_PLACEHOLDER = re.compile(r"@_user_(\d{1,6})( ?)|(@_all)(?!\w)")


class UnsupportedContent(ValueError):
    """The content of a message is not the JSON object that the platform documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuContent:
    """The content of a message.

    Attributes:
        text: Its text as Markdown. A message without text, such as a sticker, becomes a line in brackets.
        attachments: Its files.
        mentions: Names of mentioned people by open ID.
        unnamed: IDs of people (`ou_...`) and groups (`oc_...`) in the text whose names are missing.
    """

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    mentions: Mapping[str, str] = field(default_factory=dict)
    unnamed: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """One line per file, for a quotation."""
        return [f"[{file.kind}: {file.name}]" for file in self.attachments]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A message that is being read.

    Attributes:
        value: Its content.
        people: Names.
        holder: ID of the message from which to fetch its files.
        own_id: The bot's open ID, to leave out mentions of the bot.
    """

    value: JsonNode
    people: People
    holder: str
    own_id: str = ""


def message_type(message: JsonNode) -> str:
    """Return the type of a message from an event or the API."""
    return message.text("message_type") or message.text("msg_type")


def read_message(
    message: JsonNode,
    *,
    names: Mapping[str, str],
    own_id: str = "",
    held: Sequence[JsonNode] = (),
) -> FeishuContent:
    """Return the content of a message.

    Args:
        message: `event.message` of an event, or an item of the API.
        names: Names of people and groups by ID.
        own_id: The bot's open ID, to leave out mentions of the bot.
        held: The messages inside a forwarded message, that is, the other items of the API's response.

    Raises:
        UnsupportedContent: The content is not a JSON object.

    >>> read_message(JsonNode({"message_type": "text", "content": '{"text": "hi"}'}), names={}).text
    'hi'
    """
    people = People(names)
    if message_type(message) == MERGE_FORWARD:
        content = _read_forwarded(message, held, people)
    else:
        content = _read_one(message, people, message.text("message_id"), own_id)
    return FeishuContent(
        text=content.text.strip(),
        attachments=content.attachments,
        mentions=mentioned_people(message),
        unnamed=tuple(people.unnamed),
    )


def mentioned_people(message: JsonNode) -> Mapping[str, str]:
    """Return the names of mentioned people by open ID."""
    people = ((mention_id(one), one.text("name")) for one in message.items("mentions"))
    return {user: name for user, name in people if user and name}


def mention_id(mention: JsonNode) -> str:
    """Return the open ID of a mention. Events have an object of IDs, and the API has one ID."""
    return mention["id"].text("open_id") or mention.text("id")


def is_withheld(message: JsonNode) -> bool:
    """Return whether the platform returned a substitute for a message: a card in another form, or no type."""
    kind = message_type(message)
    content = JsonNode.parse(_raw_content(message))
    return kind == "nonsupport" or (kind == CARD and is_card_withheld(content))


def forwarded_text(items: Sequence[JsonNode], names: Mapping[str, str]) -> str:
    r"""Return the text of forwarded messages, for a file.

    Args:
        items: The API's response: the message that contains the others, then those messages.
        names: Names of people by ID.

    >>> said = {"msg_type": "text", "sender": {"id": "ou_1"}, "body": {"content": '{"text": "hi"}'}}
    >>> forwarded_text([JsonNode({"msg_type": "merge_forward"}), JsonNode(said)], {"ou_1": "Ann"})
    'Ann: hi'
    """
    return _Transcript(items[0], items[1:], People(names)).text if items else ""


def _raw_content(message: JsonNode) -> str:
    """Return the content, a JSON string. Events have it at the top level, and items of the API in `body`."""
    return message.raw("content") or message["body"].raw("content")


def _content(message: JsonNode) -> JsonNode:
    """Return the content.

    Raises:
        UnsupportedContent: It is not a JSON object.
    """
    value = parse_json(_raw_content(message))
    if not isinstance(value, dict):
        kind = message_type(message)[:40]
        raise UnsupportedContent(f"the content of a message of type {kind!r} is not a JSON object")
    return JsonNode(value)


def _read_one(message: JsonNode, people: People, holder: str, own_id: str = "") -> FeishuContent:
    if message.flag("deleted"):
        return FeishuContent(text="[Withdrawn]")
    kind = message_type(message)
    source = _Source(value=_content(message), people=people, holder=holder, own_id=own_id)
    reader = _READERS.get(kind)
    content = reader(source) if reader else _unknown(source, kind)
    text = _resolve_mentions(content.text, message, own_id)
    return FeishuContent(text=text, attachments=content.attachments)


def _resolve_mentions(text: str, message: JsonNode, own_id: str) -> str:
    """Return a text with names instead of placeholders, without mentions of the bot."""
    names = {}
    for mention in message.items("mentions"):
        is_own = bool(own_id) and mention_id(mention) == own_id
        names[mention.text("key")] = "" if is_own else f"@{mention.text('name') or SOMEONE}"

    def replaced(match: re.Match[str]) -> str:
        if match[3]:
            return "@all"
        # The text after the placeholder may begin with a digit: `@_user_1` before `9:00`.
        for end in range(len(match[1]), 0, -1):
            name = names.get(f"@_user_{match[1][:end]}")
            if name is not None:
                rest = match[1][end:]
                return f"{name}{rest}{match[2]}" if name or rest else ""
        return match[0]

    return _PLACEHOLDER.sub(replaced, text)


def _text(source: _Source) -> FeishuContent:
    return FeishuContent(text=source.value.text("text"))


def _post(source: _Source) -> FeishuContent:
    text = post_markdown(source.value, source.people, own_id=source.own_id)
    pictures = (_picture(source.holder, key) for key in post_pictures(source.value))
    nodes = (node for node in post_nodes(source.value) if node.text("tag") in _POST_FILES)
    files = (_file(source.holder, node, _POST_FILES[node.text("tag")]) for node in nodes)
    body = post_body(source.value)
    beside = [
        *source.value.items("files"),
        *(body.items("files") if body is not source.value else ()),
    ]
    more = (_file(source.holder, file, "file") for file in beside)
    attachments = [file for group in (pictures, files, more) for found in group for file in found]
    return FeishuContent(text=text, attachments=tuple(attachments))


_POST_FILES: Mapping[str, Kind] = {"media": "video", "file": "file", "audio": "audio"}


def _image(source: _Source) -> FeishuContent:
    return FeishuContent(attachments=tuple(_picture(source.holder, source.value.text("image_key"))))


def _upload(kind: Kind) -> "_Reader":
    def read(source: _Source) -> FeishuContent:
        return FeishuContent(attachments=tuple(_file(source.holder, source.value, kind)))

    return read


def _line(what: str, *fields: str) -> "_Reader":
    """Return a reader for messages that are described in one line."""

    def read(source: _Source) -> FeishuContent:
        return FeishuContent(text=named(what, *map(source.value.text, fields)))

    return read


def _folder(source: _Source) -> FeishuContent:
    note = "its files cannot be read here"
    return FeishuContent(text=named("Folder", source.value.text("file_name"), note))


def _card(source: _Source) -> FeishuContent:
    words = card_markdown(source.value, source.people)
    if is_card_withheld(source.value):
        words = "\n".join(filter(None, ["[Not readable here: a card]", words]))
    return FeishuContent(text=words or "[A card without words]")


def _event(source: _Source) -> FeishuContent:
    value = source.value
    moments = [utc_minute(value.milliseconds(name)) for name in ("start_time", "end_time")]
    when = " to ".join(filter(None, moments))
    return FeishuContent(text=named("Calendar event", value.text("summary"), when))


def _meeting(source: _Source) -> FeishuContent:
    value, begins = source.value, utc_minute(source.value.milliseconds("start_time"))
    number = value.text("meet_number").strip()
    number = f"number {number}" if number else ""
    return FeishuContent(text=named("Video meeting", value.text("topic"), begins, number))


def _shared(what: str, field: str) -> "_Reader":
    def read(source: _Source) -> FeishuContent:
        shared = source.value.text(field)
        name = source.people.label(shared, source.value.text("name"))
        return FeishuContent(text=named(what, name, shared if shared != name else ""))

    return read


def _system(source: _Source) -> FeishuContent:
    """Fill in the platform's template: `{from_user} invited {to_chatters}`."""
    value = source.value

    def filled(match: re.Match[str]) -> str:
        words = [word for word in value.values(match[1]) if isinstance(word, str)]
        return ", ".join(words) or value.text(match[1]) or value[match[1]].text("text")

    text = re.sub(r"\{(\w{1,40})\}", filled, value.text("template"))
    return FeishuContent(text=named("System message", clean(text)))


def _todo(source: _Source) -> FeishuContent:
    """Read a task, whose summary is rich text."""
    summary = " ".join(post_markdown(source.value["summary"], source.people).split())
    due = utc_minute(source.value.milliseconds("due_time"))
    return FeishuContent(text=named("Task", summary, f"due {due}" if due else ""))


def _vote(source: _Source) -> FeishuContent:
    options = [option for option in source.value.values("options") if isinstance(option, str)]
    lines = [named("Poll", source.value.text("topic")), *(f"- {option}" for option in options)]
    return FeishuContent(text=clean("\n".join(lines)))


def _unknown(source: _Source, kind: str) -> FeishuContent:
    """Describe a message of an unknown type, and include fields that look like text."""
    fields = ("title", "name", "topic", "summary", "text", "content")
    words = list(dict.fromkeys(filter(None, map(source.value.text, fields))))
    note = f"[Not readable here: a message of type {kind[:40] or 'unknown'}]"
    return FeishuContent(text="\n".join([note, *words]))


_Reader = Callable[[_Source], FeishuContent]

_READERS: Mapping[str, _Reader] = {
    "text": _text,
    "post": _post,
    "image": _image,
    "file": _upload("file"),
    "folder": _folder,
    "audio": _upload("audio"),
    "media": _upload("video"),
    "video": _upload("video"),
    "sticker": _line("Sticker"),
    CARD: _card,
    "hongbao": _line("Red packet"),
    "share_calendar_event": _event,
    "calendar": _event,
    "general_calendar": _event,
    "share_chat": _shared("Group", "chat_id"),
    "share_user": _shared("Contact", "user_id"),
    "system": _system,
    "location": _line("Location", "name", "latitude", "longitude"),
    "video_chat": _meeting,
    "todo": _todo,
    "vote": _vote,
}
"""Readers of all documented types except `merge_forward`, which contains other messages."""


def _picture(holder: str, key: str) -> Iterator[Attachment]:
    if key:
        ref = _resource(holder, key, "image")
        yield Attachment(name=_PICTURE, mime="image/png", kind="image", ref=ref)


def _file(holder: str, value: JsonNode, kind: Kind) -> Iterator[Attachment]:
    key = value.text("file_key")
    if key:
        duration_ms = value.milliseconds("duration")
        name = value.text("file_name").strip() or _default_name(kind, duration_ms)
        mime = _MIMES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")
        yield Attachment(
            name=name,
            mime=mime,
            kind=kind,
            ref=_resource(holder, key, "file"),
            is_speech=kind == "audio" or mime.startswith("audio/"),
            duration_s=parse_duration(duration_ms, units_per_s=1000),
        )


def _default_name(kind: Kind, duration_ms: int | None) -> str:
    """Return a name for an unnamed file. It contains the length of voice messages and videos."""
    suffix = {"audio": ".opus", "video": ".mp4"}.get(kind, "")
    length = f"-{round(duration_ms / 1000)}s" if duration_ms and suffix else ""
    return f"{kind}{length}{suffix}"


def _resource(holder: str, key: str, kind: str) -> str:
    """Return the API path (below im/v1) of a message's file."""
    return f"messages/{quote(holder, safe='')}/resources/{quote(key, safe='')}?type={kind}"


def _read_forwarded(message: JsonNode, held: Sequence[JsonNode], people: People) -> FeishuContent:
    """Return forwarded messages as text if they are short, or else as a file, which is created when it is fetched."""
    message_id = message.text("message_id")
    transcript = _Transcript(message, held, people)
    if held and len(transcript.text) <= MAX_FORWARDED_CHARS:
        return FeishuContent(text=transcript.text, attachments=transcript.attachments)
    ref = f"{FORWARDED_REF}{message_id}"
    file = Attachment(name=FORWARDED_NAME, mime="text/markdown", ref=ref)
    note = f"[{len(held)} messages: see {FORWARDED_NAME}]" if held else ""
    return FeishuContent(text=note, attachments=(file, *transcript.attachments))


class _Transcript:
    """Forwarded messages as text. The first line of each is not indented. Times are shown after pauses.

    People without a name get numbers.

    Attributes:
        text: The messages.
        attachments: Their files, which the platform offers under the ID of the containing message.
    """

    def __init__(self, message: JsonNode, held: Sequence[JsonNode], people: People) -> None:
        self._people = people
        self._holder = message.text("message_id")
        self._numbers: dict[str, str] = {}
        self._children: dict[str, list[JsonNode]] = {}
        ids = {item.text("message_id") for item in held} - {""}
        for item in sorted(held, key=lambda item: item.milliseconds("create_time") or 0):
            above = item.text("upper_message_id")
            inside = above if above in ids and above != item.text("message_id") else self._holder
            self._children.setdefault(inside, []).append(item)
        self._files: list[Attachment] = []
        self.text = self._level(self._holder, 0)
        self.attachments = tuple(self._files)

    def _level(self, holder: str, level: int) -> str:
        lines: list[str] = []
        before = 0
        for item in self._children.pop(holder, []) if level < _MAX_LEVELS else []:
            sent_at = item.milliseconds("create_time")
            moment = utc_minute(sent_at)
            if sent_at is not None and moment:
                lines += [f"[{moment}]"] if sent_at - before > _PAUSE_MS else []
                before = sent_at
            words = self._words(item, level)
            lines.append(f"{self._author(item)}: {words}".replace("\n", "\n  "))
        return "\n".join(lines)

    def _words(self, item: JsonNode, level: int) -> str:
        if message_type(item) == MERGE_FORWARD:
            return f"{FORWARDED}\n{self._level(item.text('message_id'), level + 1)}".rstrip()
        try:
            content = _read_one(item, self._people, self._holder)
        except UnsupportedContent:
            return "[Not readable here]"
        self._files += content.attachments
        return "\n".join(filter(None, [content.text.strip(), *content.files])) or "[empty]"

    def _author(self, item: JsonNode) -> str:
        number = f"Person {len(self._numbers) + 1}"
        name = self._people.author(item["sender"])
        return name or self._numbers.setdefault(item["sender"].text("id"), number)
