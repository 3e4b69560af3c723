"""Text with Telegram entities, which are properly nested and trimmed, with offsets in UTF-16 units. Pure."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bots.text.characters import utf16_length

_NAME = re.compile(r"(?<![A-Za-z0-9_])@(?:\w[\w./-]*(?<![./-])|\Z)")
"""Text that Telegram or a reader takes for a person's name. Includes "@" at the end, because a name may follow."""

_RANK = (
    "text_link", "pre", "code", "blockquote", "expandable_blockquote", "spoiler", "bold", "italic", "strikethrough",
)  # fmt: skip
"""Entities to keep first if there are too many, after those that prevent a name from becoming a mention."""


_QUOTES = frozenset({"blockquote", "expandable_blockquote"})
"""Entities that may contain code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEntity:
    """A formatted range: `offset` and `length` in UTF-16 code units.

    Attributes:
        type: bold, italic, strikethrough, spoiler, code, pre, text_link, blockquote or expandable_blockquote.
        url: URL of a text_link, else "".
        language: Language of a pre, else "".
    """

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedText:
    """A message's text and its entities, outer before inner."""

    text: str
    entities: tuple[TextEntity, ...]


@dataclass(slots=True, kw_only=True)
class _OpenStyle:
    """An open style. `start` moves when code interrupts it."""

    type: str
    url: str
    start: int


class EntityWriter:
    """Collects text and entities.

    Telegram forbids code inside bold and other styles, so they end before it and continue after it. Inside a link, code
    is plain text.

    Args:
        bare: Disguise names in code too, because the code's entity may be dropped.
    """

    def __init__(self, *, bare: bool) -> None:
        self._bare = bare
        self._parts: list[str] = []
        self._units = 0
        self._entities: list[TextEntity] = []
        self._open: list[_OpenStyle] = []
        self._indent = ""

    def text(self, text: str) -> None:
        """Write text in which names do not become mentions.

        Each name becomes code, because Telegram does not look for names in code. It does not look for names in links
        either, so those stay unchanged.
        """
        if self._bare or self._is_in_link():
            self.raw(hide_mentions(text) if self._bare else text)
            return
        for words, is_name in split_names(text):
            if is_name:
                self.code(words, kind="code")
            else:
                self.raw(words)

    def raw(self, text: str) -> None:
        """Write text unchanged, indented after line breaks."""
        self._put(text.replace("\n", "\n" + self._indent) if self._indent else text)

    def code(self, code: str, *, kind: str, language: str = "") -> None:
        """Write code as `code` or `pre`."""
        if self._is_in_link():
            self.text(code)
            return
        for style in self._open:
            if style.type not in _QUOTES:
                self._close(style)
        start = self._units
        self._put(hide_mentions(code) if self._bare else code)
        self._entities.append(
            TextEntity(type=kind, offset=start, length=self._units - start, language=language)
        )
        for style in self._open:
            if style.type not in _QUOTES:
                style.start = self._units

    @contextmanager
    def style(self, kind: str, *, url: str = "") -> Iterator[None]:
        """Apply a style to text written inside the block. A style inside the same style has no effect."""
        if any(style.type == kind for style in self._open):
            yield
            return
        style = _OpenStyle(type=kind, url=url, start=self._units)
        self._open.append(style)
        yield
        self._open.remove(style)
        self._close(style)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent lines that start inside the block by two more spaces."""
        before, self._indent = self._indent, self._indent + "  "
        yield
        self._indent = before

    def finish(self) -> FormattedText:
        """Return the message, trimmed as Telegram does. Entities neither begin nor end with blanks."""
        text = "".join(self._parts)
        lead = min(
            [len(text) - len(text.lstrip())]
            + [entity.offset for entity in self._entities if entity.type == "pre"]
        )
        entities = _trimmed(text, self._entities)
        shifted = (replace(entity, offset=entity.offset - lead) for entity in entities)
        ordered = sorted(shifted, key=lambda entity: (entity.offset, -entity.length))
        return FormattedText(text=text[lead:].rstrip(), entities=tuple(ordered))

    def _is_in_link(self) -> bool:
        return any(style.type == "text_link" for style in self._open)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._units += utf16_length(text)

    def _close(self, style: _OpenStyle) -> None:
        if self._units > style.start:
            self._entities.append(
                TextEntity(
                    type=style.type,
                    offset=style.start,
                    length=self._units - style.start,
                    url=style.url,
                )
            )


def split_names(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text, and whether each could be a mention.

    >>> list(split_names("npm i @types/node, a@b.c"))
    [('npm i ', False), ('@types/node', True), (', a@b.c', False)]
    """
    end = 0
    for name in _NAME.finditer(text) if "@" in text else ():
        if name.start() > end:
            yield text[end : name.start()], False
        yield name[0], True
        end = name.end()
    if end < len(text):
        yield text[end:], False


def hide_mentions(text: str) -> str:
    """Return a text that looks the same but contains no mention.

    It is for text that cannot be code because of the limit of 100 entities.
    """
    return _NAME.sub(lambda name: "@\u2060" + name[0][1:], text)


def limit_entities(message: FormattedText, most: int) -> FormattedText | None:
    """Drop formatting beyond `most` entities. Return None if a name would then become a mention."""
    units = message.text.encode("utf-16-le")
    guards = {entity for entity in message.entities if _is_guard(entity, units)}
    ranked = sorted(
        message.entities, key=lambda entity: (entity not in guards, _RANK.index(entity.type))
    )
    if len(guards) > most:
        return None
    ordered = sorted(ranked[:most], key=lambda entity: (entity.offset, -entity.length))
    return FormattedText(text=message.text, entities=tuple(ordered))


def _is_guard(entity: TextEntity, units: bytes) -> bool:
    """Return whether an entity prevents a name inside it from becoming a mention."""
    if entity.type not in {"code", "pre", "text_link"}:
        return False
    content = units[entity.offset * 2 : (entity.offset + entity.length) * 2]
    return _NAME.search(content.decode("utf-16-le")) is not None


def _trimmed(text: str, entities: list[TextEntity]) -> Iterator[TextEntity]:
    """Strip blanks from both ends of every entity. Drop blank entities."""
    units = text.encode("utf-16-le")
    for entity in entities:
        content = units[entity.offset * 2 : (entity.offset + entity.length) * 2].decode("utf-16-le")
        if not content.strip():
            continue
        lead = 0 if entity.type == "pre" else len(content) - len(content.lstrip())
        kept = content[lead:].rstrip()
        yield replace(entity, offset=entity.offset + lead, length=utf16_length(kept))
