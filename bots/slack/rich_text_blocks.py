"""Renders Markdown that Slack might misread as Slack rich text, where all text is literal. Pure.

The blocks: docs.slack.dev/reference/block-kit/blocks/rich-text-block. In rich text, mentions of people, groups and
    everyone are separate elements, which this module never creates.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from typing import Any, TypeAlias

from bots.text import tree
from bots.text.links import escape_url, is_clickable_url
from bots.text.table_grid import table_grid
from bots.text.tree import plain

Json: TypeAlias = dict[str, Any]

MAX_INDENT = 8

_STYLES: Mapping[type[tree.Inline], str] = {
    tree.Strong: "bold",
    tree.Emphasis: "italic",
    tree.Strike: "strike",
}

_CALL = r"@(?:channel|here|everyone|group)\b"
_UNSURE = re.compile(
    r"[`\\]|<(?=\S)|&(?=#?\w{1,32};)|!(?=\[)|\](?=[(:])"
    r"|[*~](?=\S)|(?<=\S)[*~]|(?<![^\W_])_|_(?![^\W_])"
    rf"|{_CALL}",
    re.IGNORECASE,
)
"""Text that Slack's Markdown may interpret as a mark, a tag, an entity, an image, a link or a mention of everyone."""

_LIVE_IN_CODE = re.compile(
    rf"<(?:!(?:channel|here|everyone|group|subteam|date)|[@#][A-Z0-9])|{_CALL}", re.IGNORECASE
)


def is_sure(block: tree.Block) -> bool:
    r"""Return whether every parser shows a Markdown block in the same way and without notifying people.

    >>> from bots.text.markdown import parse
    >>> [is_sure(parse(text)[0]) for text in ("**a** `b` 2 * 3", r"\*a", "f(__init__)", "`<!here>`", "a < b")]
    [True, False, False, False, True]
    """
    match block:
        case tree.HeadingBlock(children=children) | tree.Paragraph(children=children):
            return _are_sure(children)
        case tree.CodeBlock(text=text):
            return _LIVE_IN_CODE.search(text) is None
        case tree.Table(header=header, rows=rows):
            return all(_are_sure(cell) for row in (header, *rows) for cell in row)
        case _:
            return all(map(is_sure, tree.inner_blocks(block)))


def _are_sure(inlines: Sequence[tree.Inline]) -> bool:
    return not any(starmap(_would_mix, pairwise(inlines))) and all(map(_is_sure_inline, inlines))


def _would_mix(before: tree.Inline, after: tree.Inline) -> bool:
    """Return whether two neighbors could be parsed as one mark or token."""
    match before:
        case tree.Text(text=text):
            return text.endswith(("!", "<", "@", "]", "&")) and not isinstance(after, tree.Break)
        case tree.Code() | tree.Strong() | tree.Emphasis() | tree.Strike():
            return isinstance(after, tree.Code | tree.Strong | tree.Emphasis | tree.Strike)
        case _:
            return False


def _is_sure_inline(inline: tree.Inline) -> bool:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text, source=source):
            return text == source and _UNSURE.search(text) is None
        case tree.Code(text=text):
            return "`" not in text and _LIVE_IN_CODE.search(text) is None
        case tree.ImageInline(alt=text):
            return _UNSURE.search(text) is None and "[" not in text
        case tree.Link(url=url, children=children):
            return is_clickable_url(url) and bool(plain(children).strip()) and _are_sure(children)
        case tree.Break():
            return True
        case _:
            return _are_sure(inline.children)


def rich_text(block: tree.Block) -> Json:
    """Return the Slack block for a Markdown block with any content.

    >>> from bots.text.markdown import parse
    >>> rich_text(parse("see **@here**")[0])["elements"][0]["elements"]
    [{'type': 'text', 'text': 'see '}, {'type': 'text', 'text': '@here', 'style': {'bold': True}}]
    """
    if isinstance(block, tree.Rule):
        return {"type": "divider"}
    return {"type": "rich_text", "elements": list(_elements(block, indent=0))}


def rich_text_size(block: Mapping[str, Any]) -> int:
    """Return the length of a rich text block's visible text, characters."""
    return sum(
        len(part.get("text") or part.get("url") or "")
        if "elements" not in part
        else rich_text_size(part)
        for part in block.get("elements", ())
    )


def _elements(block: tree.Block, *, indent: int) -> Iterator[Json]:
    match block:
        case tree.HeadingBlock(children=children):
            yield section(children, {"bold": True})
        case tree.Paragraph(children=children):
            yield section(children)
        case tree.ListBlock():
            yield from _list(block, indent)
        case tree.Quote(children=children):
            yield {"type": "rich_text_quote", "elements": list(_flat(children)) or _BLANK}
        case tree.CodeBlock(text=text):
            yield _preformatted(text)
        case tree.Table():
            yield _preformatted(table_grid(block))
        case _:
            yield section((tree.Text(text="———", source="———"),))


_BLANK: list[Json] = [{"type": "text", "text": " "}]
"""Drop elements without text, which Slack refuses."""


def section(inlines: Iterable[tree.Inline], style: Mapping[str, bool] | None = None) -> Json:
    """Return a section of rich text."""
    parts = [part for inline in inlines for part in _parts(inline, style or {})]
    return {"type": "rich_text_section", "elements": _joined(parts) or _BLANK}


def _preformatted(text: str) -> Json:
    return {"type": "rich_text_preformatted", "elements": _text(text, {}) or _BLANK}


def _list(listing: tree.ListBlock, indent: int) -> Iterator[Json]:
    """Yield a list. Code and other blocks inside an item split the list into parts."""
    waiting: list[Json] = []
    first = 0
    for index, item in enumerate(listing.items):
        lead, others = _lead(item)
        if not waiting:
            first = index
        box = _box(listing.checks[index])
        waiting.append(section([tree.Text(text=box, source=box), *lead]))
        if others:
            yield _list_part(listing, waiting, first, indent)
            waiting = []
            for other in others:
                yield from _elements(other, indent=indent + 1)
    if waiting:
        yield _list_part(listing, waiting, first, indent)


def _list_part(listing: tree.ListBlock, items: list[Json], first: int, indent: int) -> Json:
    part: Json = {
        "type": "rich_text_list",
        "style": "bullet" if listing.start is None else "ordered",
        "indent": min(indent, MAX_INDENT),
        "elements": items,
    }
    offset = 0 if listing.start is None else listing.start - 1 + first
    return part | ({"offset": offset} if offset > 0 else {})


def _lead(item: Sequence[tree.Block]) -> tuple[list[tree.Inline], Sequence[tree.Block]]:
    """Return the first text of an item, and its other blocks."""
    words: list[tree.Inline] = []
    for index, block in enumerate(item):
        if not isinstance(block, tree.Paragraph | tree.HeadingBlock):
            return words, item[index:]
        words += [tree.Break(hard=True)] * bool(words) + list(block.children)
    return words, ()


def _box(check: bool | None) -> str:  # noqa: FBT001 - a value, not a switch
    return "" if check is None else ("☑ " if check else "☐ ")


def _flat(blocks: Sequence[tree.Block]) -> Iterator[Json]:
    """Yield blocks as text only, for quotations, which cannot contain other elements."""
    parts: list[Json] = []
    for block in blocks:
        parts += [{"type": "text", "text": "\n"}] * bool(parts)
        parts += _flat_block(block)
    yield from _joined(parts)


def _flat_block(block: tree.Block) -> list[Json]:  # noqa: PLR0911 - one return per kind
    match block:
        case tree.HeadingBlock(children=children):
            return [part for child in children for part in _parts(child, {"bold": True})]
        case tree.Paragraph(children=children):
            return [part for child in children for part in _parts(child, {})]
        case tree.CodeBlock(text=text):
            return _text(text, {"code": True})
        case tree.Table():
            return _text(table_grid(block), {"code": True})
        case tree.Rule():
            return _text("———", {})
        case tree.ListBlock():
            return _flat_list(block)
        case _:
            return list(_flat(tree.inner_blocks(block)))


def _flat_list(listing: tree.ListBlock) -> list[Json]:
    parts: list[Json] = []
    for index, item in enumerate(listing.items):
        marker = "• " if listing.start is None else f"{listing.start + index}. "
        lead = ("\n" if index else "") + marker + _box(listing.checks[index])
        parts += [*_text(lead, {}), *_flat(item)]
    return parts


def _parts(inline: tree.Inline, style: Mapping[str, bool]) -> list[Json]:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text, native=tree.Native(kind="address")):
            return _link(text, text, style)
        case tree.Text(text=text):
            return _text(text, style)
        case tree.Code(text=text):
            return _text(text, {**style, "code": True})
        case tree.Break():
            return _text("\n", style)
        case tree.Link(url=url, children=children):
            return _link(url, plain(children), style)
        case tree.ImageInline(url=url, alt=alt):
            return _link(url, alt or "image", style)
        case _:
            return _styled(inline, style)


def _styled(inline: tree.Style, style: Mapping[str, bool]) -> list[Json]:
    own = _STYLES.get(type(inline))
    inner = style if own is None else {**style, own: True}
    parts = [part for child in inline.children for part in _parts(child, inner)]
    bars = _text("||", style) if isinstance(inline, tree.Spoiler) else []
    return [*bars, *parts, *bars]


def _text(text: str, style: Mapping[str, bool]) -> list[Json]:
    if not text:
        return []
    return [{"type": "text", "text": text, **({"style": dict(style)} if style else {})}]


def _link(url: str, label: str, style: Mapping[str, bool]) -> list[Json]:
    if not is_clickable_url(url):
        return _text(label if label == url else f"{label} ({url})", style)
    shown = {"style": dict(style)} if style else {}
    return [{"type": "link", "url": escape_url(url), "text": label or url, **shown}]


def _joined(parts: Sequence[Json]) -> list[Json]:
    """Join neighboring texts with the same style."""
    joined: list[Json] = []
    for part in parts:
        last = joined[-1] if joined else {}
        both = {part["type"], last.get("type")} == {"text"}
        if both and part.get("style") == last.get("style"):
            joined[-1] = last | {"text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return joined
