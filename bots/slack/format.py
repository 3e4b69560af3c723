"""Markdown as Slack messages: `markdown` and `table` blocks, with escaped mrkdwn as fallback text. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bots.slack.buttons import action_blocks
from bots.slack.mrkdwn import escape, render_mrkdwn
from bots.slack.tables import native_table, table_block, table_chars, table_load
from bots.text import tree
from bots.text.characters import clean_outbound
from bots.text.links import escape_url, is_clickable_url
from bots.text.markdown import parse
from bots.text.measure import MeasuredSize
from bots.text.renderer import render_blocks
from bots.text.table_grid import table_grid
from bots.text.tree import walk
from bus.messages import Button

__all__ = ["SlackText", "escape", "fits", "render", "render_plain"]

MAX_TEXT = 39_000
"""Characters of the fallback text: Slack recommends at most 4,000."""

MAX_BLOCK = 12_000
"""Characters of a `markdown` block; one more gives `msg_too_long`."""

ROOM = 11_000
"""Characters that `fits` grants: a message's blocks hold 13,200 together, buttons and a status included."""

MAX_SECTION = 3_000
"""Characters of a `section` block."""

MAX_ITEMS = 45
"""Headings, dividers and blocks of one message: Slack expands a `markdown` block into at most 50 items."""

EMPTY = "…"
"""Stands for a reply without text: Slack refuses an empty message."""

_JOINER = "\u2060"
"""WORD JOINER: invisible, and no part of any live token."""

_TOKEN = re.compile(
    r"<(?=!(?:channel|here|everyone|group|subteam|date)|[@#][A-Z0-9])", re.IGNORECASE
)
_CALL = re.compile(r"@(?=(?:channel|here|everyone|group)\b|\Z)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackText:
    """A message's `text` (mrkdwn, for notifications and old clients) and its `blocks`."""

    text: str
    blocks: tuple[dict[str, Any], ...]


def render(markdown: str, buttons: Sequence[Button] = ()) -> SlackText:
    """Render one message. What `fits` refuses may be cut; nothing in the result pings anybody.

    >>> render("**hi** <!here>").text
    '*hi* &lt;!here&gt;'
    """
    blocks = parse(markdown)
    shown = _shown(blocks) or ({"type": "markdown", "text": EMPTY},)
    text = render_mrkdwn(blocks, limit=MAX_TEXT) or EMPTY
    return SlackText(text=text, blocks=(*shown, *action_blocks(buttons)))


def render_plain(markdown: str, buttons: Sequence[Button] = ()) -> SlackText:
    """Return a message without formatting, for one whose blocks Slack refused.

    >>> render_plain("**hi** <!here>").text
    '**hi** &lt;!here&gt;'
    """
    text = escape(clean_outbound(markdown))[:MAX_TEXT] or EMPTY
    if not buttons or len(text) > MAX_SECTION:
        return SlackText(text=text, blocks=())
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return SlackText(text=text, blocks=(section, *action_blocks(buttons)))


def fits(markdown: str) -> MeasuredSize:
    """Tell whether a reply is one message: characters, expanded items, one table within Slack's limits."""
    if len(markdown) > MAX_BLOCK * 2:
        return MeasuredSize(share=len(markdown) / ROOM)
    blocks = parse(markdown)
    tables = [table for block in blocks if (table := native_table(block))]
    words = _words([block for block in blocks if native_table(block) is None])
    chars = len(words) + sum(map(table_chars, tables))
    items = (
        sum(isinstance(block, tree.HeadingBlock | tree.Rule) for block in walk(blocks))
        + 1
        + 2 * len(tables)
    )
    return MeasuredSize(share=max(items / MAX_ITEMS, chars / ROOM, table_load(tables)))


def _shown(blocks: Sequence[tree.Block]) -> tuple[dict[str, Any], ...]:
    """Return the blocks of a message: the first table by itself, what stands around it as Markdown."""
    for at, block in enumerate(blocks):
        table = native_table(block)
        if table is not None and table_load([table]) <= 1:
            before = _markdown(blocks[:at], MAX_BLOCK)
            used = sum(len(block["text"]) for block in before)
            return (*before, table_block(table), *_markdown(blocks[at + 1 :], MAX_BLOCK - used))
    return _markdown(blocks, MAX_BLOCK)


def _markdown(blocks: Sequence[tree.Block], room: int) -> tuple[dict[str, Any], ...]:
    """Return a `markdown` block, or nothing if there is nothing to say or no room to say it."""
    text = _words(blocks)
    if not text.strip() or room < 1:
        return ()
    return ({"type": "markdown", "text": text if len(text) <= room else text[: room - 1] + "…"},)


def _words(blocks: Sequence[tree.Block]) -> str:
    return render_blocks(tuple(map(_drawn, blocks)), _Slack()).strip("\n")


def _drawn(block: tree.Block) -> tree.Block:
    """Draw the tables inside a block as code: a `markdown` block does not know them."""
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
    """Slack's Markdown is like GFM. An invisible joiner breaks live tokens; images become links."""

    def text(self, text: tree.Text) -> str:
        if text.source != text.text:  # an escape or an entity: one character
            return text.source + (_JOINER if text.text in {"<", "@"} else "")
        # "](": Slack may take for a link what is none here, such as one to `javascript:` or `file:`.
        inert = text.source.replace("<", f"<{_JOINER}").replace("](", f"]{_JOINER}(")
        return _CALL.sub(f"@{_JOINER}", inert)

    def code(self, code: str) -> str:
        return _TOKEN.sub(f"<{_JOINER}", code)

    def link(self, url: str, label: str) -> str:
        if is_clickable_url(url):
            return f"[{label}]({escape_url(url)})"
        return f"{label} ({self.text(tree.Text(text=url, source=url))})"

    def image(self, image: tree.ImageInline) -> str:
        words = image.alt.translate({ord("["): "(", ord("]"): ")"}).replace("\n", " ")
        return self.link(image.url, self.text(tree.Text(text=words, source=words)) or "image")

    def heading(self, level: int) -> int:
        return level

    def table(self, table: str) -> str:
        return table
