"""Markdown as a tree of JSON, from which the console makes elements. No part of the tree is HTML. Pure."""

from collections.abc import Sequence
from typing import Any, assert_never

from bots.text import tree
from bots.text.markdown import parse

Token = str | dict[str, Any]
"""A text, or a node: `t` is its kind, `c` its children."""


def markdown_tokens(markdown: str) -> list[Token]:
    """Parse Markdown and return its blocks. Blocking: 10 kB take a few milliseconds.

    >>> markdown_tokens("**Hi** <b>")
    [{'t': 'p', 'c': [{'t': 'strong', 'c': ['Hi']}, ' <b>']}]
    """
    return _blocks(parse(markdown))


def _blocks(blocks: Sequence[tree.Block]) -> list[Token]:
    return [_block(block) for block in blocks]


def _inlines(inlines: Sequence[tree.Inline]) -> list[Token]:
    return [_inline(inline) for inline in inlines]


def _block(block: tree.Block) -> Token:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    match block:
        case tree.HeadingBlock():
            return {"t": "heading", "level": block.level, "c": _inlines(block.children)}
        case tree.Paragraph():
            return {"t": "p", "c": _inlines(block.children)}
        case tree.ListBlock():
            pairs = zip(block.items, block.checks, strict=True)
            items = [{"check": check, "c": _blocks(item)} for item, check in pairs]
            return {"t": "list", "start": block.start, "tight": block.tight, "items": items}
        case tree.Quote():
            return {"t": "quote", "c": _blocks(block.children)}
        case tree.CodeBlock():
            if block.formula:
                return {"t": "formula", "text": block.formula}
            return {"t": "pre", "text": block.text, "language": block.language}
        case tree.Details():
            return {
                "t": "details",
                "summary": _inlines(block.summary),
                "c": _blocks(block.children),
            }
        case tree.Table():
            return {
                "t": "table",
                "align": list(block.alignments),
                "header": [_inlines(cell) for cell in block.header],
                "rows": [[_inlines(cell) for cell in row] for row in block.rows],
            }
        case tree.Rule():
            return {"t": "rule"}
        case _:
            assert_never(block)


def _inline(inline: tree.Inline) -> Token:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    match inline:
        case tree.Text():
            native = inline.native
            if native is not None and native.kind in ("sub", "sup"):
                return {"t": native.kind, "c": [inline.text]}
            if native is not None and native.kind == "formula":
                return {"t": "formula", "text": native.value}
            return inline.text
        case tree.Strong():
            return {"t": "strong", "c": _inlines(inline.children)}
        case tree.Emphasis():
            return {"t": "em", "c": _inlines(inline.children)}
        case tree.Strike():
            return {"t": "strike", "c": _inlines(inline.children)}
        case tree.Spoiler():
            return {"t": "spoiler", "c": _inlines(inline.children)}
        case tree.Code():
            return {"t": "code", "text": inline.text}
        case tree.Link():
            return {"t": "link", "url": inline.url, "c": _inlines(inline.children)}
        case tree.ImageInline():
            return {"t": "image", "url": inline.url, "alt": inline.alt}
        case tree.Break():
            return {"t": "br"}
        case _:
            assert_never(inline)
