"""Converts content blocks from clients' forms to LangChain's standard form, and to a form that a model accepts. Pure.

Clients write an attachment in a dozen ways: LangChain's old and new forms for Python, its form for JavaScript, OpenAI's
and Anthropic's parts, and mixtures of them. A model class raises an error for most of these, and would raise it again
for every later message of the thread.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar
from urllib.parse import unquote_to_bytes

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from agent.uploads.images import image_type

Block = dict[str, Any]
Kind = Literal["image", "audio", "video", "file"]
Source = Literal["url", "base64", "file_id"]
Accepted = Mapping[Kind, frozenset[Source]]
"""The kinds of attachments that a model accepts, and the sources of each kind."""

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    **dict.fromkeys(("file", "file_url", "input_file", "document", "media"), "file"),
}
"""The kinds of attachments, by the `type` of their blocks."""

_TEXTS = frozenset({"text", "input_text", "output_text"})
_PLAIN = "text-plain"

_SOURCES: tuple[tuple[Source, tuple[str, ...]], ...] = (
    ("base64", ("base64", "data", "file_data", "fileData")),
    ("url", ("url", "uri", "file_url", "fileUrl", "file_uri", "fileUri", *_KINDS, "source")),
    ("file_id", ("file_id", "fileId")),
)
"""The keys of the sources. The first one that holds text counts."""

_MIME_KEYS = ("mime_type", "mimeType", "media_type", "mediaType")
_NAME_KEYS = ("filename", "fileName", "file_name", "name", "title")
_NESTED = (*_KINDS, "source", "inline_data", "inlineData", "metadata", "extras")
"""Keys whose value may be an object with more fields of the attachment."""

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_DEFAULT_MIME: Mapping[Kind, str] = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "file": "application/octet-stream",
}
_PDF = "JVBERi"  # the beginning of a PDF in base64
_HEAD_CHARS = 24  # base64 characters that hold the first bytes, which show an image's type

_WORDS: Mapping[Kind, str] = {
    "image": "An image",
    "audio": "An audio recording",
    "video": "A video",
    "file": "A file",
}
_NAME_CHARS = 100

MessageT = TypeVar("MessageT", bound=BaseMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attachment:
    """An attachment of a block. A plain text has its content in `text`, and no source."""

    kind: Kind
    source: Source | None = None
    value: str = ""
    mime: str = ""
    name: str = ""
    text: str | None = None

    def block(self) -> Block:
        """Return it as a standard block."""
        name = self.name
        if not name and (self.kind, self.source) == ("file", "base64"):
            name = "file.pdf" if self.mime == "application/pdf" else "file"  # OpenAI requires one
        extras: Block = {"extras": {"filename": name}} if name else {}
        if self.text is not None:
            return {"type": _PLAIN, "text": self.text, "mime_type": "text/plain", **extras}
        source: Block = {self.source: self.value} if self.source else {}
        mime: Block = {"mime_type": self.mime} if self.mime else {}
        return {"type": self.kind, **source, **mime, **extras}

    def note(self) -> str:
        """Return the line that replaces it."""
        return _note(_WORDS[self.kind], self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputs:
    """The attachments that a model and its LangChain class accept.

    Attributes:
        people: Those in people's messages and in tool results.
        model: Those in the model's own messages; None = everything that its server sent.
        searches: Blocks from its server's own web search, in the model's own messages.
    """

    people: Accepted
    model: Accepted | None = None
    searches: frozenset[str] = frozenset()


_ANYWHERE: frozenset[Source] = frozenset({"url", "base64", "file_id"})
_SENT: frozenset[Source] = frozenset({"url", "base64"})
_NOTHING: Accepted = {}
_ANTHROPIC_SEARCH = frozenset({"server_tool_use", "web_search_tool_result"})
_OPENAI_SEARCH = frozenset({"web_search_call"})
_SEARCHES = _ANTHROPIC_SEARCH | _OPENAI_SEARCH
_BY_PACKAGE: Mapping[str, ModelInputs] = {
    "langchain_openai": ModelInputs(
        people={
            "image": _SENT,
            "audio": frozenset({"base64"}),
            "file": frozenset({"base64", "file_id"}),
        },
        model=_NOTHING,
    ),
    "langchain_anthropic": ModelInputs(
        people={"image": _ANYWHERE, "file": _ANYWHERE}, searches=_ANTHROPIC_SEARCH
    ),
    "langchain_google_genai": ModelInputs(people=dict.fromkeys(_WORDS, _ANYWHERE)),
}
_RESPONSES = ModelInputs(people={"image": _SENT, "file": _ANYWHERE}, searches=_OPENAI_SEARCH)
"""OpenAI's newer API."""
_OTHERS = ModelInputs(people={"image": _SENT}, model=_NOTHING)


def model_inputs(model: BaseChatModel, *, supports_vision: bool) -> ModelInputs:
    """Return the attachments that a model accepts, based on its class and on whether it supports images."""
    packages = (kind.__module__.partition(".")[0] for kind in type(model).__mro__)
    known = next((_BY_PACKAGE[name] for name in packages if name in _BY_PACKAGE), _OTHERS)
    if getattr(model, "use_responses_api", None):
        known = _RESPONSES
    if supports_vision:
        return known
    blind: Accepted = {kind: known.people[kind] for kind in known.people if kind != "image"}
    return replace(known, people=blind)


def standard_message(message: MessageT) -> MessageT:
    """Return a message with its attachments as standard blocks. A model's message stays unchanged."""
    content = message.content
    if isinstance(content, str) or isinstance(message, AIMessage):
        return message
    blocks = [block if isinstance(block, str) else standard_block(block) for block in content]
    return message if blocks == content else message.model_copy(update={"content": blocks})


def standard_block(block: Block) -> Block:
    """Return a text or attachment as a standard block of LangChain 1. Unknown and incomplete ones stay unchanged.

    OpenAI's `image_url` also stays: all model classes know it, and it may contain the detail level.

    >>> standard_block({"type": "image", "mimeType": "image/png", "data": "aGk="})
    {'type': 'image', 'base64': 'aGk=', 'mime_type': 'image/png'}
    >>> standard_block({"type": "image_url", "image_url": "https://a.example/b.png"})
    {'type': 'image', 'url': 'https://a.example/b.png'}
    >>> standard_block({"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}})
    {'type': 'file', 'file_id': 'f1', 'extras': {'filename': 'a.pdf'}}
    """
    if (text := _text(block)) is not None:
        return block if block.get("text") is text and block.get("type") == "text" else _said(text)
    if not isinstance(block.get("type", ""), str):
        return _said(_note("Something", ""))  # all code that reads this block would fail
    found = _parse(block)
    if found is None or (found.source is None and found.text is None) or _is_openai_image(block):
        return block
    return found.block()


def fit_messages(messages: list[MessageT], inputs: ModelInputs) -> list[MessageT]:
    """Return messages that a model accepts. A line of text replaces each attachment that it does not accept.

    The same list is returned if nothing changes.
    """
    fitted = [_fit_message(message, inputs) for message in messages]
    return messages if all(a is b for a, b in zip(fitted, messages, strict=True)) else fitted


def _fit_message(message: MessageT, inputs: ModelInputs) -> MessageT:
    content = message.content
    if type(content) is str:
        return message  # fast path for almost every message; a thread may have thousands
    is_models = isinstance(message, AIMessage)
    if is_models:
        message = _without_searches(message, inputs.searches)
        content = message.content
    accepted = inputs.model if is_models else inputs.people
    if accepted is None:
        return message
    if isinstance(message, SystemMessage):
        accepted = _NOTHING
    blocks = [_fit_block(block, accepted, keeps_others=is_models) for block in content]
    return message if blocks == content else message.model_copy(update={"content": blocks})


def _without_searches(message: MessageT, accepted: frozenset[str]) -> MessageT:
    """Remove the blocks and citations of another provider's web search from a model's message."""
    kinds = {block.get("type") for block in message.content if isinstance(block, dict)}
    others = _SEARCHES - accepted
    if not kinds & others:
        return message
    blocks = [
        _said(block.get("text", "")) if block.get("type") == "text" else block
        for block in message.content
        if isinstance(block, dict) and block.get("type") not in others
    ]
    return message.model_copy(update={"content": blocks})


def _fit_block(block: str | Block, accepted: Accepted, *, keeps_others: bool) -> str | Block:
    if isinstance(block, str):
        return block
    standard = standard_block(block)
    found = None if standard.get("type") == "text" else _parse(standard)
    if found is None:
        kind = standard.get("type")
        is_kept = kind == "text" or (keeps_others and isinstance(kind, str))
        return standard if is_kept else _said(_note("Something", ""))
    if found.text is not None:
        return _said(f"{found.name}\n\n{found.text}" if found.name else found.text)
    if found.source in accepted.get(found.kind, frozenset()):
        return standard
    return _said(found.note())


def _text(block: Block) -> str | None:
    """Return the text of a text block; None for other blocks."""
    kind, text = block.get("type"), block.get("text")
    is_text = isinstance(kind, str) and kind in _TEXTS
    if not is_text and not (kind is None and isinstance(text, str)):
        return None
    if isinstance(text, str):
        return text
    return "" if text is None else json.dumps(text, ensure_ascii=False, default=str)


def _parse(block: Block) -> _Attachment | None:
    """Return the attachment of a block in any form; None if it has none."""
    given = block.get("type")
    if given == "non_standard" and isinstance(block.get("value"), dict):
        return _parse(block["value"])
    fields = list(_fields(block))
    mime = _first(fields, _MIME_KEYS) or _audio_mime(fields)
    kind = "file" if given == _PLAIN else _kind(block, mime)
    if kind is None:
        return None
    name = _first(fields, _NAME_KEYS)
    if given == _PLAIN or _is_plain(fields):
        text = _first(fields, ("text", "data", "url"))
        return _Attachment(kind="file", name=name, text=text or None)
    source, value = _source(fields)
    return _sourced(kind, source, value, mime, name)


def _source(fields: list[Mapping[str, Any]]) -> tuple[Source | None, str]:
    """Return the kind of an attachment's source, and the data, address or id."""
    for source, keys in _SOURCES:
        if value := _first(fields, keys):
            return source, value
    old_id = _first(fields, ("id",)) if _first(fields, ("source_type",)) == "id" else ""
    return ("file_id", old_id) if old_id else (None, "")


def _sourced(kind: Kind, source: Source | None, value: str, mime: str, name: str) -> _Attachment:
    """Return an attachment. Decodes data URLs, adds a missing MIME type, and ignores URLs that are not on the web."""
    if source in {"url", "base64"} and (parts := _DATA_URL.match(value)):
        data = value[parts.end() :]
        is_base64 = "base64" in parts[2].lower()
        value = data if is_base64 else base64.b64encode(unquote_to_bytes(data)).decode()
        source, mime = "base64", parts[1] or mime
        kind = _kind_of_mime(mime) or kind if kind == "file" else kind
    elif source == "url" and not value.lower().startswith(("http://", "https://", "gs://")):
        return _Attachment(kind=kind, name=name)
    if source == "base64":
        mime = mime or _mime_of_data(kind, value)
    return _Attachment(kind=kind, source=source, value=value, mime=mime, name=name)


def _fields(block: Block) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that hold the fields of an attachment. The block itself comes last."""
    for key in _NESTED:
        inner = block.get(key)
        if isinstance(inner, Mapping):
            yield from _fields(dict(inner)) if key == "source" else (inner,)
    yield block


def _first(fields: list[Mapping[str, Any]], keys: tuple[str, ...]) -> str:
    """Return the first text under one of the keys; "" if there is none."""
    found = (one.get(key) for key in keys for one in fields)
    return next((text for text in found if isinstance(text, str) and text), "")


def _kind(block: Block, mime: str) -> Kind | None:
    """Return the kind of an attachment. For a file or a block without type, the MIME type decides."""
    given = block.get("type")
    if given is not None:
        kind = _KINDS.get(given) if isinstance(given, str) else None
        return _kind_of_mime(mime) or kind if kind == "file" else kind
    named = next((_KINDS[key] for key in block if key in _KINDS), None)
    is_sourced = any(key in block for _, keys in _SOURCES for key in keys)
    return _kind_of_mime(mime) or named or ("file" if is_sourced else None)


def _kind_of_mime(mime: str) -> Kind | None:
    kind = mime.partition("/")[0].lower()
    return next((one for one in _WORDS if one == kind), None)


def _is_plain(fields: list[Mapping[str, Any]]) -> bool:
    """Return whether an attachment is a plain text in LangChain's old form or in Anthropic's form."""
    return any(
        one.get("source_type") == "text" or (one.get("type") == "text" and "data" in one)
        for one in fields
    )


def _audio_mime(fields: list[Mapping[str, Any]]) -> str:
    """Return the MIME type for OpenAI's `format` of a recording."""
    kind = _first(fields, ("format",))
    return f"audio/{kind}" if kind.isalnum() else ""


def _mime_of_data(kind: Kind, data: str) -> str:
    """Return the MIME type of base64 data that came without one."""
    if kind == "file":
        return "application/pdf" if data.startswith(_PDF) else _DEFAULT_MIME[kind]
    try:
        known = image_type(base64.b64decode(data[:_HEAD_CHARS])) if kind == "image" else None
    except (binascii.Error, ValueError):
        known = None
    return known or _DEFAULT_MIME[kind]


def _is_openai_image(block: Block) -> bool:
    inner = block.get("image_url")
    if block.get("type") != "image_url" or not isinstance(inner, Mapping):
        return False
    return str(inner.get("url")).startswith(("http://", "https://", "data:image/"))


def _said(text: str) -> Block:
    return {"type": "text", "text": text}


def _note(what: str, name: str) -> str:
    """Return the line that replaces an attachment.

    >>> _note("A file", "a].pdf")
    '[A file (a .pdf) was attached here; this model cannot read it.]'
    """
    shown = " ".join(name.replace("[", " ").replace("]", " ").split())[:_NAME_CHARS]
    return f"[{what}{f' ({shown})' if shown else ''} was attached here; this model cannot read it.]"
