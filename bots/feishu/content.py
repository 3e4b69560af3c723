"""Content of Feishu messages as plain text and attachments. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal
from urllib.parse import quote

from bots.text.characters import clean
from bus.messages import Attachment

Kind = Literal["file", "image", "audio", "video"]

_FILES: Final[Mapping[str, Kind]] = {"file": "file", "audio": "audio", "media": "video"}
_NAMES: Final[Mapping[Kind, str]] = {"file": "file", "audio": "audio.opus", "video": "video.mp4"}
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_MIMES: Final[Mapping[str, str]] = {
    ".csv": "text/csv", ".doc": "application/msword", ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".gif": "image/gif", ".htm": "text/html", ".html": "text/html", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
    ".json": "application/json", ".md": "text/markdown", ".mov": "video/quicktime", ".mp3": "audio/mpeg",
    ".mp4": "video/mp4", ".opus": "audio/ogg", ".pdf": "application/pdf", ".png": "image/png",
    ".ppt": "application/vnd.ms-powerpoint", ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".svg": "image/svg+xml", ".txt": "text/plain", ".wav": "audio/wav", ".webp": "image/webp",
    ".xls": "application/vnd.ms-excel", ".xlsx": f"{_OFFICE}.spreadsheetml.sheet", ".xml": "application/xml",
    ".zip": "application/zip",
}  # fmt: skip
"""Not `mimetypes`: it reads files of the machine, so that its answers differ between machines."""
_PICTURE: Final = "image.png"
"""Pictures come without a name or type; the platform keeps most as PNG or JPEG."""


class UnsupportedContent(ValueError):
    """The content is of a type, or in a shape, that Parley does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedContent:
    """What a message holds: its words with mention placeholders (`@_user_1`), and its files."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()


_UNSUPPORTED: Final[Mapping[str, str]] = {
    "sticker": "a sticker",
    "share_chat": "the card of a group",
    "share_user": "the card of a person",
    "location": "a place",
    "vote": "a poll",
    "todo": "a task",
    "share_calendar_event": "an event of a calendar",
    "calendar": "an event of a calendar",
    "general_calendar": "an event of a calendar",
    "video_chat": "an invitation to a call",
    "hongbao": "a red packet",
    "folder": "a folder",
    "interactive": "a card",
}
"""What people can send that has no words for us, in words for the agent, which tells the person."""

_LINES_OF_CARD: Final = 200


def describe_unsupported(message_type: str, content: str) -> str:
    """Return what is told the agent of a message that cannot be read as such; "" of one that can, or of none.

    >>> describe_unsupported("sticker", "{}")
    '[Not readable here: a sticker]'
    """
    what = _UNSUPPORTED.get(message_type)
    if what is None:
        return ""
    try:
        value = _parse(content)
    except UnsupportedContent:
        value = {}  # forwarded messages have none
    named = [_text(value, name) for name in ("title", "name", "topic", "summary", "text")]
    lines = [name for name in named if name] + _card_lines(value)
    note = f"[Not readable here: {what}]"
    return clean("\n".join([note, *lines]))


def _card_lines(value: Mapping[str, object]) -> list[str]:
    """Return the words of a card that somebody passed on: the platform tells them line by line."""
    lines = ["".join(_node(node, "") for node in nodes) for nodes in _lists(value.get("elements"))]
    return [line for line in lines if line.strip()][:_LINES_OF_CARD]


def parse_content(
    message_id: str, message_type: str, content: str, own_id: str = ""
) -> ParsedContent:
    """Return what a message says.

    Args:
        message_id: Where its files are fetched from.
        message_type: The event's `message_type`.
        content: The event's `content`: JSON as a string.
        own_id: The bot's open id: rich text may mention it by that instead of a placeholder.

    Raises:
        UnsupportedContent: the type is none of text, post, image, file, audio, media, or the JSON is broken.

    >>> parse_content("om_1", "text", '{"text": "hi"}').text
    'hi'
    """
    value = _parse(content)
    if message_type == "text":
        return ParsedContent(text=clean(_text(value, "text")))
    if message_type == "post":
        return _post(message_id, value, own_id)
    if message_type == "image":
        return ParsedContent(attachments=tuple(_picture(message_id, value)))
    if message_type in _FILES:
        return ParsedContent(attachments=tuple(_file(message_id, value, _FILES[message_type])))
    raise UnsupportedContent(f"messages of type {message_type[:40]!r} are not read")


def _parse(content: str) -> Mapping[str, object]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnsupportedContent("the content is not JSON") from error
    if not isinstance(value, dict):
        raise UnsupportedContent("the content is not a JSON object")
    return value


def _text(value: Mapping[str, object], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""


def _post(message_id: str, value: Mapping[str, object], own_id: str) -> ParsedContent:
    """Read rich text: one map for each locale, or a bare one."""
    if not isinstance(value.get("content"), list):
        value = next((body for body in value.values() if isinstance(body, dict)), {})
    lines = [_text(value, "title")] if _text(value, "title") else []
    attachments: list[Attachment] = []
    for nodes in _lists(value.get("content")):
        words = []
        for node in nodes:
            words.append(_node(node, own_id))
            attachments.extend(_node_files(message_id, node))
        lines.append("".join(words))
    for file in _objects(value.get("files")):
        attachments.extend(_file(message_id, file, "file"))
    return ParsedContent(text=clean("\n".join(lines)), attachments=tuple(attachments))


def _lists(value: object) -> Iterator[list[Mapping[str, object]]]:
    for item in value if isinstance(value, list) else []:
        yield list(_objects(item))


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    yield from (
        item for item in (value if isinstance(value, list) else []) if isinstance(item, dict)
    )


def _node(node: Mapping[str, object], own_id: str) -> str:
    """Return the words of one element of rich text."""
    match node.get("tag"):
        case "a":
            label, link = _text(node, "text"), _text(node, "href")
            return label if not link or link == label else f"{label} ({link})" if label else link
        case "at":
            return _mention(node, own_id)
        case "code_block":
            return f"```{_text(node, 'language').lower()}\n{_text(node, 'text').rstrip()}\n```"
        case "emotion":
            return f":{_text(node, 'emoji_type')}:"
        case _:
            return _text(node, "text")


def _mention(node: Mapping[str, object], own_id: str) -> str:
    """Return a mention as its placeholder, which the event explains, or by name."""
    user = _text(node, "user_id")
    if user.startswith("@_"):
        return user
    if user == "all":
        return "@_all"
    return "" if user == own_id else f"@{_text(node, 'user_name') or 'someone'}"


def _node_files(message_id: str, node: Mapping[str, object]) -> Iterator[Attachment]:
    match node.get("tag"):
        case "img":
            yield from _picture(message_id, node)
        case "media":
            yield from _file(message_id, node, "video")
        case "file":
            yield from _file(message_id, node, "file")
        case _:
            return


def _picture(message_id: str, value: Mapping[str, object]) -> Iterator[Attachment]:
    key = _text(value, "image_key")
    if key:
        ref = _resource(message_id, key, "image")
        yield Attachment(name=_PICTURE, mime="image/png", kind="image", ref=ref)


def _file(message_id: str, value: Mapping[str, object], kind: Kind) -> Iterator[Attachment]:
    key = _text(value, "file_key")
    if key:
        name = clean(_text(value, "file_name")).strip() or _NAMES[kind]
        mime = _MIMES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")
        yield Attachment(name=name, mime=mime, kind=kind, ref=_resource(message_id, key, "file"))


def _resource(message_id: str, key: str, kind: str) -> str:
    """Return the API path (below im/v1) that hands out a message's file."""
    return f"messages/{quote(message_id, safe='')}/resources/{quote(key, safe='')}?type={kind}"
