"""The Markdown tree that renderers read: frozen, typed, with limited nesting."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Align: TypeAlias = Literal["", "left", "center", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """The meaning of a text that a platform may show in its own form.

    Attributes:
        kind: An address, a formula, or subscript or superscript text.
        value: The address; the formula without its delimiters; the text.
    """

    kind: Literal["address", "formula", "sub", "sup"]
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Literal text.

    Attributes:
        text: The visible text.
        source: The Markdown source, which differs in escapes and entities.
        native: Its meaning, if it is more than text.
    """

    text: str
    source: str
    native: Native | None = None


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
    """Strikethrough."""

    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoiler:
    """A spoiler."""

    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Inline code."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to any address that the author chose. Renderers check the scheme."""

    url: str
    children: "tuple[Inline, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInline:
    """An image. `alt` is plain text."""

    url: str
    alt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A line break inside a paragraph. `hard`: whether it is explicit."""

    hard: bool


Style: TypeAlias = Strong | Emphasis | Strike | Spoiler

Inline: TypeAlias = Text | Style | Code | Link | ImageInline | Break


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
    """A list.

    Attributes:
        start: The first number, None for bullets.
        tight: No blank lines between items.
        items: The blocks of each item.
        checks: For each item, whether its box is checked; None if it has no box.
    """

    start: int | None
    tight: bool
    items: "tuple[tuple[Block, ...], ...]"
    checks: tuple[bool | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quotation."""

    children: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Code, without its last line break.

    Attributes:
        text: The code; a formula with its delimiters.
        language: "" or one word.
        formula: A display formula without its delimiters.
    """

    text: str
    language: str
    formula: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A section that the reader can open. `summary` is always visible."""

    summary: tuple[Inline, ...]
    children: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. Every row has as many cells as `header`."""

    alignments: tuple[Align, ...]
    header: tuple[tuple[Inline, ...], ...]
    rows: tuple[tuple[tuple[Inline, ...], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A thematic break."""


Block: TypeAlias = HeadingBlock | Paragraph | ListBlock | Quote | CodeBlock | Details | Table | Rule


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


def open_details(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return blocks without details. A summary becomes a bold line above the content."""
    opened: list[Block] = []
    for block in blocks:
        match block:
            case Details(summary=summary, children=children):
                opened += [Paragraph(children=(Strong(children=summary),))] * bool(summary)
                opened += open_details(children)
            case Quote(children=children):
                opened.append(replace(block, children=open_details(children)))
            case ListBlock(items=items):
                opened.append(replace(block, items=tuple(map(open_details, items))))
            case _:
                opened.append(block)
    return tuple(opened)


def inner_blocks(block: Block) -> tuple[Block, ...]:
    """Return the blocks directly inside a block."""
    match block:
        case Quote(children=children) | Details(children=children):
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
