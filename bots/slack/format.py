"""Renders Markdown as Slack messages: `markdown`, `table` and `rich_text` blocks, with mrkdwn as fallback text. Pure.

A `markdown` block contains text that every Markdown parser shows in the same way. Text that Slack's parser could
interpret differently (an escape, a literal `*`, `@here`) is sent as rich text, where all text is literal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from bots.slack.buttons import action_blocks
from bots.slack.mrkdwn import escape, render_mrkdwn
from bots.slack.rich_text_blocks import is_sure, rich_text, rich_text_size
from bots.slack.tables import native_table, table_block, table_chars, table_load
from bots.text import tree
from bots.text.links import escape_url, is_clickable_url
from bots.text.markdown import parse
from bots.text.measure import RENDERED_KEPT
from bots.text.renderer import code_span, fence, render_blocks
from bots.text.table_grid import table_grid
from bots.text.tree import walk
from bus.characters import clean_outbound
from bus.messages import Button

__all__ = ["SlackText", "escape", "fits", "render", "render_note", "render_plain"]

MAX_TEXT = 39_000
"""Maximum length of the fallback text, characters. Slack recommends at most 4,000."""

MAX_BLOCK = 12_000
"""Maximum length of a `markdown` block, characters. Slack refuses a longer one (`msg_too_long`)."""

ROOM = 11_000
"""Maximum length of a message for `fits`, characters.

Its blocks may have 13,200 characters in total, including buttons and a status.
"""

MAX_SECTION = 3_000
"""Maximum length of a `section` block, characters."""

MAX_ITEMS = 45
"""Maximum number of headings, dividers and other blocks in a message.

Slack expands a `markdown` block into at most 50 items.
"""

MAX_SHOWN = 45
"""Maximum number of blocks in a message that was not split. Slack accepts 50, including the buttons."""

EMPTY = "…"
"""Text of a reply without text, because Slack refuses an empty message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackText:
    """A message's `text` (mrkdwn, for notifications and old clients) and its `blocks`."""

    text: str
    blocks: tuple[dict[str, Any], ...]


def render(markdown: str, buttons: Sequence[Button] = ()) -> SlackText:
    """Render one message. Text that `fits` refuses may be cut. Nothing in the result notifies anyone.

    >>> render("**hi** <!here>").text
    '*hi* &lt;!here&gt;'
    """
    layout = _lay_out(markdown)
    shown = _shown(layout) or ({"type": "markdown", "text": EMPTY},)
    text = render_mrkdwn(layout.blocks, limit=MAX_TEXT) or EMPTY
    return SlackText(text=text, blocks=(*shown, *action_blocks(buttons)))


def render_plain(markdown: str, buttons: Sequence[Button] = ()) -> SlackText:
    """Return a message without formatting, to send when Slack has refused its blocks.

    >>> render_plain("**hi** <!here>").text
    '**hi** &lt;!here&gt;'
    """
    text = escape(clean_outbound(markdown))[:MAX_TEXT] or EMPTY
    if not buttons or len(text) > MAX_SECTION:
        return SlackText(text=text, blocks=())
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
    return SlackText(text=text, blocks=(section, *action_blocks(buttons)))


def render_note(text: str) -> SlackText:
    """Return a plain text of at most 3,000 characters in small type: a context block, where all text is literal.

    >>> render_note("*hi* <!here>").text
    '*hi* &lt;!here&gt;'
    """
    plain = {"type": "plain_text", "text": clean_outbound(text), "emoji": False}
    context = {"type": "context", "elements": [plain]}
    return SlackText(text=escape(clean_outbound(text)), blocks=(context,))


def fits(markdown: str) -> bool:
    """Return whether a reply fits into one message, by its characters, its expanded items, and its tables."""
    if len(markdown) > MAX_BLOCK * 2:
        return False
    layout = _lay_out(markdown)
    tables = [table for block in layout.blocks if (table := native_table(block))]
    shown = (*layout.before, *layout.after)
    chars = sum(map(_size, shown)) + sum(map(table_chars, tables))
    headings = sum(
        isinstance(block, tree.HeadingBlock | tree.Rule) for block in walk(layout.blocks)
    )
    items = headings + 1 + max(len(shown) - 1, 0) + 2 * len(tables)
    return items <= MAX_ITEMS and chars <= ROOM and table_load(tables) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """A text as blocks of a message: the first table that fits as one, and the text before and after it."""

    blocks: tuple[tree.Block, ...]
    before: tuple[dict[str, Any], ...]
    table: tree.Table | None = None
    after: tuple[dict[str, Any], ...] = ()


@lru_cache(RENDERED_KEPT)
def _lay_out(markdown: str) -> _Layout:
    blocks = tree.open_details(parse(markdown))
    for at, block in enumerate(blocks):
        table = native_table(block)
        if table is not None and table_load([table]) <= 1:
            before, after = tuple(_runs(blocks[:at])), tuple(_runs(blocks[at + 1 :]))
            return _Layout(blocks=blocks, before=before, table=table, after=after)
    return _Layout(blocks=blocks, before=tuple(_runs(blocks)))


def _shown(layout: _Layout) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a message. Drops content that does not fit."""
    before = _within(layout.before, MAX_BLOCK)
    if layout.table is None:
        return before
    used = sum(map(_size, before))
    return (*before, table_block(layout.table), *_within(layout.after, MAX_BLOCK - used))


def _within(blocks: Sequence[dict[str, Any]], room: int) -> tuple[dict[str, Any], ...]:
    """Return the blocks that fit. Of a long `markdown` block, keeps the beginning."""
    shown: list[dict[str, Any]] = []
    for block in blocks:
        size = _size(block)
        if size > room:
            if block["type"] == "markdown" and room > 0:
                shown.append(block | {"text": block["text"][: room - 1] + "…"})
            break
        shown.append(block)
        room -= size
    return tuple(shown[:MAX_SHOWN])


def _runs(blocks: Sequence[tree.Block]) -> Iterator[dict[str, Any]]:
    """Yield `markdown` blocks, each as long as possible, and rich text between them."""
    for sure, run in groupby(map(_drawn, blocks), is_sure):
        if sure:
            text = render_blocks(tuple(run), _Slack()).strip("\n")
            if text.strip():
                yield {"type": "markdown", "text": text}
        else:
            yield from map(rich_text, run)


def _size(block: dict[str, Any]) -> int:
    return len(block["text"]) if block["type"] == "markdown" else rich_text_size(block)


def _drawn(block: tree.Block) -> tree.Block:
    """Draw tables inside a block as code, because a `markdown` block does not support them."""
    match block:
        case tree.Table():
            return tree.CodeBlock(text=table_grid(block), language="")
        case tree.Quote(children=children):
            return replace(block, children=tuple(map(_drawn, children)))
        case tree.ListBlock(items=items):
            return replace(block, items=tuple(tuple(map(_drawn, item)) for item in items))
        case _:
            return block


class _Slack:
    """Slack's Markdown, which resembles GFM. Only unambiguous text is written in it. Images become links."""

    def text(self, text: tree.Text) -> str:
        return text.text

    def code(self, code: str) -> str:
        return code_span(code)

    def code_block(self, code: str, language: str) -> str:
        return fence(code, language)

    def link(self, url: str, label: str) -> str:
        return f"[{label}]({escape_url(url)})" if is_clickable_url(url) else f"{label} ({url})"

    def image(self, image: tree.ImageInline) -> str:
        return self.link(image.url, image.alt.replace("\n", " ") or "image")

    def heading(self, level: int) -> int:
        return level

    def box(self, *, checked: bool) -> str:
        return "[x]" if checked else "[ ]"

    def table(self, table: str) -> str:
        return table
