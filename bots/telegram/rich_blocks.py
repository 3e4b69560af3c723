"""Renders Markdown as a rich message (Bot API 10.2) if text with entities would show less. Pure.

Blocks are built from the tree, never from markup, so model output can neither load an image nor add a button.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from bots.telegram.entities import split_names
from bots.telegram.format import is_clickable
from bots.text import tree
from bots.text.characters import is_right_to_left, is_visible
from bots.text.markdown import parse
from bots.text.tree import inner_blocks, plain, walk

Json: TypeAlias = dict[str, Any]
Rich: TypeAlias = Any
"""A RichText of the Bot API: a string, a list of rich texts, or an object."""

MAX_CHARACTERS = 32_768
MAX_BLOCKS = 500
"""Maximum number of blocks of a message, including list items and table rows."""
MAX_LEVELS = 16
MAX_COLUMNS = 20
"""Limits of rich messages (Bot API: "Rich message limits")."""

_STYLES: Mapping[type[tree.Inline], str] = {
    tree.Strong: "bold",
    tree.Emphasis: "italic",
    tree.Strike: "strikethrough",
    tree.Spoiler: "spoiler",
}
_BLANK = "\u00a0"


def rich_message(markdown: str) -> Json | None:
    """Return a text as an `InputRichMessage`; None if text with entities shows as much, or if it exceeds the limits.

    >>> rich_message("# שלום")
    {'blocks': [{'type': 'heading', 'text': 'שלום', 'size': 1}], 'is_rtl': True}
    """
    blocks = rich_blocks(markdown)
    if blocks is None:
        return None
    is_rtl = is_right_to_left(" ".join(map(_words, walk(parse(markdown)))))
    return {"blocks": blocks, **({"is_rtl": True} if is_rtl else {})}


def _words(block: tree.Block) -> str:
    """Return the inline text directly in a block."""
    match block:
        case tree.HeadingBlock(children=words) | tree.Paragraph(children=words):
            return plain(word for word in words if not isinstance(word, tree.Code))
        case tree.Details(summary=words):
            return plain(words)
        case tree.Table(header=header, rows=rows):
            return " ".join(plain(cell) for row in (header, *rows) for cell in row)
        case _:
            return ""


def rich_blocks(markdown: str) -> list[Json] | None:
    """Return a message's blocks; None if text with entities shows as much, or if they exceed the limits.

    >>> rich_blocks("# Plan")
    [{'type': 'heading', 'text': 'Plan', 'size': 1}]
    >>> rich_blocks("just *words*")
    """
    blocks = parse(markdown)
    if not any(_needs_rich(block) for block in walk(blocks)) or _depth(blocks) > MAX_LEVELS:
        return None
    made = list(_blocks(blocks))
    fits = _count_blocks(made) <= MAX_BLOCKS and len(markdown) <= MAX_CHARACTERS
    return made if fits and any(map(_has_text, walk(blocks))) else None


def _has_text(block: tree.Block) -> bool:
    """Return whether a block has text. Telegram refuses a message without text."""
    match block:
        case tree.HeadingBlock(children=children) | tree.Paragraph(children=children):
            return is_visible(plain(children))
        case tree.CodeBlock(text=text):
            return is_visible(text)
        case tree.Details(summary=summary):
            return is_visible(plain(summary))
        case tree.Table(header=header, rows=rows):
            return any(is_visible(plain(cell)) for row in (header, *rows) for cell in row)
        case _:
            return False


def _needs_rich(block: tree.Block) -> bool:
    """Return whether only a rich message can show this block."""
    if isinstance(block, tree.Table):
        return len(block.header) <= MAX_COLUMNS
    if isinstance(block, tree.Quote):
        return any(isinstance(child, tree.Quote) for child in block.children)
    if isinstance(block, tree.Paragraph):
        return any(map(_is_native, block.children))
    if isinstance(block, tree.CodeBlock):
        return bool(block.formula)
    return isinstance(block, tree.HeadingBlock | tree.ListBlock | tree.Rule | tree.Details)


def _is_native(inline: tree.Inline) -> bool:
    """Return whether only a rich message can show a part of a line, such as a formula or superscript text."""
    if isinstance(inline, tree.Text):
        return inline.native is not None and inline.native.kind != "address"
    return isinstance(inline, tree.Style | tree.Link) and any(map(_is_native, inline.children))


def _depth(blocks: Sequence[tree.Block]) -> int:
    """Return the nesting depth of blocks. A list item counts as a level."""
    return 1 + max((_depth(inner_blocks(block)) for block in blocks), default=0)


def _count_blocks(blocks: Sequence[Json]) -> int:
    """Return the number of blocks as Telegram counts them."""
    return sum(
        1
        + _count_blocks(block.get("blocks", ()))
        + sum(1 + _count_blocks(item["blocks"]) for item in block.get("items", ()))
        + len(block.get("cells", ()))
        for block in blocks
    )


def _blocks(blocks: Sequence[tree.Block]) -> Iterator[Json]:
    for block in blocks:
        made = _block(block)
        if made is not None:
            yield made


def _block(block: tree.Block) -> Json | None:  # noqa: PLR0911 - one return per kind
    """Return a block; None if it is empty, because Telegram refuses empty ones."""
    match block:
        case tree.HeadingBlock(children=children, level=level):
            return _text_block(
                {"type": "heading", "text": _texts(children), "size": level}, children
            )
        case tree.Paragraph(children=children):
            return _text_block({"type": "paragraph", "text": _texts(children)}, children)
        case tree.CodeBlock():
            return _code(block)
        case tree.Quote(children=children):
            inner = list(_blocks(children))
            return {"type": "blockquote", "blocks": inner} if inner else None
        case tree.ListBlock():
            return _list(block)
        case tree.Details():
            return _details(block)
        case tree.Table():
            return _table(block)
        case _:
            return {"type": "divider"}


def _code(block: tree.CodeBlock) -> Json:
    if block.formula:
        return {"type": "mathematical_expression", "expression": block.formula}
    language = {"language": block.language} if block.language else {}
    return {"type": "pre", "text": block.text or _BLANK, **language}


def _details(block: tree.Details) -> Json:
    inner = list(_blocks(block.children)) or [{"type": "paragraph", "text": _BLANK}]
    return {"type": "details", "summary": _texts(block.summary) or "…", "blocks": inner}


def _text_block(block: Json, children: Sequence[tree.Inline]) -> Json | None:
    return (
        block
        if is_visible(plain(children)) or any(_is_visible_inline(c) for c in children)
        else None
    )


def _is_visible_inline(inline: tree.Inline) -> bool:
    return isinstance(inline, tree.Link | tree.ImageInline)


def _list(listing: tree.ListBlock) -> Json:
    items: list[Json] = []
    for index, item in enumerate(listing.items):
        made: Json = {"blocks": list(_blocks(item)) or [{"type": "paragraph", "text": _BLANK}]}
        if (check := listing.checks[index]) is not None:
            made |= {"has_checkbox": True, **({"is_checked": True} if check else {})}
        if listing.start is not None:
            made |= {"value": listing.start + index, "type": "1"}
        items.append(made)
    return {"type": "list", "items": items}


def _table(table: tree.Table) -> Json:
    rows = [table.header, *table.rows]
    cells = [
        [
            {
                "text": _texts(cell) or _BLANK,
                "align": align or "left",
                "valign": "middle",
                **({"is_header": True} if row is table.header else {}),
            }
            for cell, align in zip(row, table.alignments, strict=True)
        ]
        for row in rows
    ]
    return {"type": "table", "cells": cells, "is_bordered": True}


def _texts(inlines: Sequence[tree.Inline]) -> Rich:
    """Return inlines as rich text, or as a string if that is enough."""
    parts: list[Rich] = []
    for inline in inlines:
        for made in _text(inline):
            if isinstance(made, str) and parts and isinstance(parts[-1], str):
                parts[-1] += made
            elif made:
                parts.append(made)
    return parts[0] if len(parts) == 1 else (parts or "")


def _text(inline: tree.Inline) -> list[Rich]:
    match inline:
        case tree.Text(native=tree.Native() as native):
            return [_native(native)]
        case tree.Text(text=text):
            return list(_literal(text))
        case _:
            made = _formatted(inline)
            return made if isinstance(made, list) else [made]


def _native(native: tree.Native) -> Rich:
    match native.kind:
        case "formula":
            return {"type": "mathematical_expression", "expression": native.value}
        case "address":
            return _address(native.value)
        case kind:
            return {"type": "superscript" if kind == "sup" else "subscript", "text": native.value}


def _literal(text: str) -> Iterator[Rich]:
    """Yield literal text. Names become code, because Telegram finds no mentions in code."""
    for words, is_name in split_names(text):
        yield {"type": "code", "text": words} if is_name else words


def _formatted(inline: tree.Inline) -> Rich:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text):
            return text
        case tree.Code(text=text):
            return {"type": "code", "text": text}
        case tree.Break():
            return "\n"
        case tree.Link(url=url, children=children):
            return _link(url, children)
        case tree.ImageInline(url=url, alt=alt):
            return _link(url, (tree.Text(text=alt or "image", source=alt),))
        case _:
            inner = _texts(inline.children)
            return {"type": _STYLES[type(inline)], "text": inner} if inner else ""


def _address(url: str) -> Rich:
    """Return a URL, which Telegram turns into a link. If it contains a name, return an explicit link."""
    if "@" in url and is_clickable(url):
        return {"type": "url", "text": url, "url": url}
    return url


def _link(url: str, children: Sequence[tree.Inline]) -> Rich:
    if not is_clickable(url):
        return [_texts(children), *_literal(f" ({url})")]
    text = plain(children).strip()
    return {"type": "url", "text": _label(children) if text else url, "url": url}


def _label(children: Sequence[tree.Inline]) -> Rich:
    """Return the text of a link. Telegram finds no mentions in it either."""
    parts = [
        child.text if isinstance(child, tree.Text) else _formatted(child) for child in children
    ]
    return parts[0] if len(parts) == 1 else parts
