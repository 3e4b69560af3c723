"""Markdown to what Slack shows: a `markdown` block, and escaped mrkdwn as its fallback. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from bots.slack.mrkdwn import escape, mrkdwn
from bots.text.bisect import Load
from bots.text.emit import emit
from bots.text.links import is_live, quoted
from bots.text.markdown import parse
from bots.text.tree import Block, Heading, Image, Rule, Text, walk

__all__ = ["SlackText", "escape", "fits", "render"]

MAX_TEXT = 39_000
"""Characters of the fallback text: Slack recommends at most 4,000."""

MAX_BLOCK = 12_000
"""Characters of a `markdown` block; one more gives `msg_too_long`."""

ROOM = 11_000
"""Characters that `fits` grants: a message's blocks hold 13,200 together, buttons and a status included."""

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


def render(markdown: str) -> SlackText:
    """Render one message. What `fits` refuses may be cut; nothing in the result pings anybody.

    >>> render("**hi** <!here>").text
    '*hi* &lt;!here&gt;'
    """
    blocks = parse(markdown)
    block = _block(blocks).strip("\n")
    if not block.strip():
        return SlackText(text=EMPTY, blocks=({"type": "markdown", "text": EMPTY},))
    if len(block) > MAX_BLOCK:
        block = block[: MAX_BLOCK - 1] + "…"
    text = mrkdwn(blocks, limit=MAX_TEXT) or EMPTY
    return SlackText(text=text, blocks=({"type": "markdown", "text": block},))


def fits(markdown: str) -> Load:
    """Tell whether a reply is one message: characters and expanded items within Slack's limits."""
    if len(markdown) > MAX_BLOCK * 2:
        return Load(share=len(markdown) / ROOM)
    blocks = parse(markdown)
    items = sum(isinstance(block, Heading | Rule) for block in walk(blocks)) + 1
    return Load(share=max(items / MAX_ITEMS, len(_block(blocks)) / ROOM))


def _block(blocks: tuple[Block, ...]) -> str:
    return emit(blocks, _Slack())


class _Slack:
    """Slack's Markdown is like GFM. An invisible joiner breaks live tokens; images become links."""

    def text(self, text: Text) -> str:
        if text.source != text.text:  # an escape or an entity: one character
            return text.source + (_JOINER if text.text in {"<", "@"} else "")
        return _CALL.sub(f"@{_JOINER}", text.source.replace("<", f"<{_JOINER}"))

    def code(self, code: str) -> str:
        return _TOKEN.sub(f"<{_JOINER}", code)

    def link(self, url: str, label: str) -> str:
        if is_live(url):
            return f"[{label}]({quoted(url)})"
        return f"{label} ({self.text(Text(text=url, source=url))})"

    def image(self, image: Image) -> str:
        words = image.alt.translate({ord("["): "(", ord("]"): ")"}).replace("\n", " ")
        return self.link(image.url, self.text(Text(text=words, source=words)) or "image")

    def heading(self, level: int) -> int:
        return level

    def table(self, table: str) -> str:
        return table
