"""The Markdown tree that renderers read: frozen, typed, with limited nesting."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Align: TypeAlias = Literal["", "left", "center", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Literal text. `source` is how Markdown wrote it: the same, but for escapes and entities."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strong:
    """Bold."""

    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emphasis:
    """Italic."""

    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Struck through."""

    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Inline code."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to any address the author chose: renderers check the scheme."""

    url: str
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInline:
    """An image; `alt` is plain text."""

    url: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A line break inside a paragraph; `hard`: an explicit one."""

    hard: bool


Inline: TypeAlias = Text | Strong | Emphasis | Strike | Code | Link | ImageInline | Break


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadingBlock:
    """A heading; `level` 1-6."""

    level: int
    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A paragraph."""

    children: tuple[Inline, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBlock:
    """A list. `start` is the first number, None for bullets; `tight` = no blank lines between items."""

    start: int | None
    tight: bool
    items: "tuple[tuple[Block, ...], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quotation."""

    children: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Code, without its last line break; `language` is "" or one word."""

    text: str
    language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: every row has as many cells as `header`."""

    alignments: tuple[Align, ...]
    header: tuple[tuple[Inline, ...], ...]
    rows: tuple[tuple[tuple[Inline, ...], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A thematic break."""


Block: TypeAlias = HeadingBlock | Paragraph | ListBlock | Quote | CodeBlock | Table | Rule


def plain(inlines: Iterable[Inline]) -> str:
    """Return the text without formatting."""
    return "".join(map(_words, inlines))


def _words(inline: Inline) -> str:
    match inline:
        case Text(text=text) | Code(text=text) | ImageInline(alt=text):
            return text
        case Break():
            return "\n"
        case _:
            return plain(inline.children)


def inner_blocks(block: Block) -> tuple[Block, ...]:
    """Return the blocks directly inside a block."""
    match block:
        case Quote(children=children):
            return children
        case ListBlock(items=items):
            return tuple(child for item in items for child in item)
        case _:
            return ()


def walk(blocks: Iterable[Block]) -> Iterable[Block]:
    """Yield all blocks, outer before inner."""
    for block in blocks:
        yield block
        yield from walk(inner_blocks(block))
