"""Renders Markdown as Telegram's text and entities. Pure."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from bots.telegram.capabilities import MAX_TEXT
from bots.telegram.entities import (
    EntityWriter,
    FormattedText,
    TextEntity,
    hide_mentions,
    limit_entities,
)
from bots.text import tree
from bots.text.characters import is_visible, utf16_length
from bots.text.links import is_clickable_url
from bots.text.markdown import parse
from bots.text.measure import RENDERED_KEPT
from bots.text.table_grid import table_grid
from bots.text.tree import plain
from bus.characters import clean_outbound

__all__ = ["FormattedText", "TextEntity", "fits", "is_clickable", "render", "render_note"]

MAX_ENTITIES = 100
"""Maximum number of entities that Telegram uses."""

EMPTY = "…"
"""Text of a reply without text, because Telegram refuses an empty message."""

COLLAPSED_FROM = 400
"""Notes of at least this many UTF-16 code units are collapsed to three lines. It is about five lines on a phone."""

_SCHEMES = ("mailto:", "tg://")
_MENTION_LINK = re.compile(r"tg:(?://)?(?:user|openmessage)\b", re.IGNORECASE)
_STYLES: Mapping[type[tree.Inline], str] = {
    tree.Strong: "bold",
    tree.Emphasis: "italic",
    tree.Strike: "strikethrough",
    tree.Spoiler: "spoiler",
}


def render(markdown: str) -> FormattedText:
    """Render one message without mentions. Formatting beyond 100 entities is dropped.

    >>> render("**a** `b`")
    FormattedText(text='a b', entities=(TextEntity(type='bold', offset=0, length=1, url='', language=''),\
 TextEntity(type='code', offset=2, length=1, url='', language='')))
    """
    message = _write(markdown)
    if len(message.entities) > MAX_ENTITIES:
        limited = limit_entities(message, MAX_ENTITIES)
        # There are too many names, so disguise them and drop the formatting.
        message = limited or FormattedText(text=_write(markdown, bare=True).text, entities=())
    return message if is_visible(message.text) else FormattedText(text=EMPTY, entities=())


def render_note(text: str) -> FormattedText:
    """Return a plain text as a quotation without mentions. A long one is collapsed.

    >>> render_note("hi").entities
    (TextEntity(type='blockquote', offset=0, length=2, url='', language=''),)
    """
    shown = hide_mentions(clean_outbound(text))
    length = utf16_length(shown)
    kind = "expandable_blockquote" if length > COLLAPSED_FROM else "blockquote"
    return FormattedText(text=shown, entities=(TextEntity(type=kind, offset=0, length=length),))


def fits(markdown: str) -> bool:
    """Return whether a reply fits into one message: at most 4,096 UTF-16 units and 100 entities."""
    if len(markdown) > MAX_TEXT * 4:
        return False
    message = _write(markdown)
    return utf16_length(message.text) <= MAX_TEXT and len(message.entities) <= MAX_ENTITIES


def is_clickable(url: str) -> bool:
    """Return whether a link may be active: web, mail and Telegram links, except links that name a person."""
    return is_clickable_url(url, also=_SCHEMES) and not _MENTION_LINK.match(url)


@lru_cache(RENDERED_KEPT)
def _write(markdown: str, *, bare: bool = False) -> FormattedText:
    renderer = _Renderer(EntityWriter(bare=bare))
    renderer.blocks(parse(markdown), gap="\n\n")
    return renderer.writer.finish()


class _Renderer:
    def __init__(self, writer: EntityWriter) -> None:
        self.writer = writer
        self._quoted = False

    def blocks(self, blocks: Sequence[tree.Block], *, gap: str) -> None:
        for index, block in enumerate(blocks):
            if index:
                self.writer.raw(gap)
            self._block(block)

    def _block(self, block: tree.Block) -> None:
        match block:
            case tree.HeadingBlock(children=children):
                with self.writer.style("bold"):
                    self._inlines(children)
            case tree.Paragraph(children=children):
                self._inlines(children)
            case tree.ListBlock():
                self._listing(block)
            case tree.Quote(children=children):
                self._quote(children, kind="blockquote")
            case tree.Details(summary=summary, children=children):
                title = tree.Paragraph(children=(tree.Strong(children=summary),))
                self._quote((title, *children), kind="expandable_blockquote")
            case tree.CodeBlock(text=text, language=language):
                self.writer.code(text, kind="pre", language=language)
            case tree.Table():
                self.writer.code(table_grid(block), kind="pre")
            case _:
                self.writer.raw("———")

    def _quote(self, children: Sequence[tree.Block], *, kind: str) -> None:
        if self._quoted:  # Quotations do not nest on Telegram.
            self.blocks(children, gap="\n")
            return
        self._quoted = True
        with self.writer.style(kind):
            self.blocks(children, gap="\n")
        self._quoted = False

    def _listing(self, listing: tree.ListBlock) -> None:
        for index, item in enumerate(listing.items):
            if index:
                self.writer.raw("\n" if listing.tight else "\n\n")
            self.writer.raw(_marker(listing, index))
            with self.writer.indented():
                self.blocks(item, gap="\n")

    def _inlines(self, inlines: Sequence[tree.Inline]) -> None:
        for inline in inlines:
            self._inline(inline)

    def _inline(self, inline: tree.Inline) -> None:
        match inline:
            case tree.Text(text=text, native=tree.Native(kind="address")):
                self._address(text)
            case tree.Text(text=text):
                self.writer.text(text)
            case tree.Code(text=text):
                self.writer.code(text, kind="code")
            case tree.Break():
                self.writer.raw("\n")
            case tree.Link(url=url, children=children):
                self._link(url, children)
            case tree.ImageInline(url=url, alt=alt):
                self._link(url, (tree.Text(text=alt or "image", source=alt),))
            case _:
                with self.writer.style(_STYLES[type(inline)]):
                    self._inlines(inline.children)

    def _address(self, url: str) -> None:
        """Write an address, which Telegram turns into a link.

        An address that contains a name is written as an explicit link. Otherwise the name would become a mention.
        """
        if "@" in url and is_clickable(url):
            with self.writer.style("text_link", url=url):
                self.writer.raw(url)
        else:
            self.writer.text(url)

    def _link(self, url: str, children: Sequence[tree.Inline]) -> None:
        if not is_clickable(url):
            self._inlines(children)
            self.writer.text(f" ({url})")
        elif not plain(children).strip():
            self._address(url)
        else:
            with self.writer.style("text_link", url=url):
                self._inlines(children)


def _marker(listing: tree.ListBlock, index: int) -> str:
    check = listing.checks[index]
    box = "" if check is None else ("☑ " if check else "☐ ")
    if listing.start is not None:
        return f"{listing.start + index}. {box}"
    return box or "• "
