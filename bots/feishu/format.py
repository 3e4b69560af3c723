"""Renders Markdown in the dialect of the `markdown` element of Feishu's card JSON 2.0. Pure.

Literal characters that Feishu could interpret as marks are written as HTML entities, as its documentation says ("Rich
Text Component"). It does not mention entities inside code, so code that contains an active tag is written as text.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from bots.text.links import escape_url, is_clickable_url
from bots.text.markdown import close_open, parse
from bots.text.measure import RENDERED_KEPT
from bots.text.renderer import code_span, fence, render_blocks
from bots.text.tree import ImageInline, Table, Text, walk

__all__ = ["fits", "render"]

MAX_BYTES = 28_000
"""Maximum size of a card's text inside the request, bytes. The platform limits the whole body to 30 KB."""

MAX_TABLES = 3
"""Maximum number of tables in a card. With one more, Feishu returns error 230099 with subcode 11310."""

_ACTIVE = re.compile(
    r"&(?=#?\w{1,32};)"
    r"|<"
    r"|`"
    r"|\\(?=[!-/:-@\[-`{-~]|\Z)"
    r"|[*~](?=\S)|(?<=\S)[*~]"
    r"|(?<![^\W_])_|_(?![^\W_])"
    # Feishu refuses a card with an image without a key (200570), and a link may be a `javascript:` link.
    r"|!(?=\[)|\](?=[(:])"
    r"|@(?=_|\Z)"
)
"""Text that Feishu may interpret as a mark, an entity, a tag, an image, a link or a mention."""

_NAMED = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_ESCAPED = frozenset("!\"#$%'()*+,-./:;=?@[\\]^_`{|}~<>&")
_LIVE_IN_CODE = re.compile(r"<(?=/?\s*(?:at|person|font)\b)|@(?=_all|_user)", re.IGNORECASE)


def render(markdown: str, *, partial: bool = False) -> str:
    """Render the text of a card; "" = no text. Mentions, fonts and other tags in it have no effect.

    Args:
        markdown: A reply, or a piece of one.
        partial: Whether the text is unfinished, so that open formatting must be closed at its end.

    >>> render("# Hi <at id=all></at>")
    '#### Hi &lt;at id=all>&lt;/at>'
    """
    return _emit(close_open(markdown) if partial else markdown).text.strip("\n")


def fits(markdown: str) -> bool:
    """Return whether a reply fits into one card: its size as sent (JSON in JSON, UTF-8), and its tables."""
    if len(markdown) > MAX_BYTES * 2:
        return False
    card = _emit(markdown)
    return card.tables <= MAX_TABLES and _sent_bytes(card.text) <= MAX_BYTES


def _sent_bytes(text: str) -> int:
    once = json.dumps(text, ensure_ascii=False)
    return len(json.dumps(once, ensure_ascii=False).encode())


@dataclass(frozen=True, slots=True)
class _CardText:
    text: str
    tables: int


@lru_cache(RENDERED_KEPT)
def _emit(markdown: str) -> _CardText:
    blocks = parse(markdown)
    tables = sum(isinstance(block, Table) for block in walk(blocks))
    return _CardText(render_blocks(blocks, _Feishu(), flat_code=True), tables)


def _escape(text: str) -> str:
    return _ACTIVE.sub(lambda found: _entity(found[0]), text)


def _entity(char: str) -> str:
    return _NAMED.get(char) or f"&#{ord(char)};"


class _Feishu:
    """Feishu's dialect. It escapes with HTML entities, has no mailto links, and shows images only by their keys."""

    def __init__(self) -> None:
        self._tables = 0

    def text(self, text: Text) -> str:
        if text.source != text.text:  # The source is an escape or an entity for one character.
            return _entity(text.text) if text.text in _ESCAPED else text.text
        escaped = _escape(text.text)
        is_address = text.native is not None and text.native.kind == "address"
        return self.link(text.text, escaped) if is_address and escaped != text.text else escaped

    def code(self, code: str) -> str:
        return code_span(code) if _LIVE_IN_CODE.search(code) is None else _escape(code)

    def code_block(self, code: str, language: str) -> str:
        if _LIVE_IN_CODE.search(code) is None:
            return fence(code, language)
        return "\n".join(map(_code_line, code.split("\n")))

    def link(self, url: str, label: str) -> str:
        if is_clickable_url(url, also=()):
            return f"[{label}]({_address(url)})"
        return f"{label} ({_escape(url)})"

    def image(self, image: ImageInline) -> str:
        words = image.alt.translate({ord("["): "(", ord("]"): ")"}).replace("\n", " ")
        label = _escape(words)
        if re.fullmatch(r"img_[\w-]{1,200}", image.url):
            return f"![{label}]({image.url})"
        return self.link(image.url, label or "image")

    def heading(self, level: int) -> int:
        return 4 if level == 1 else 5

    def box(self, *, checked: bool) -> str:
        return "☑" if checked else "☐"

    def table(self, table: str) -> str:
        self._tables += 1
        return table if self._tables <= MAX_TABLES else self.code_block(table, "")


def _address(url: str) -> str:
    """Return the target of a link without anything that looks like a mention."""
    return escape_url(url).replace("@_", "%40_")


def _code_line(line: str) -> str:
    """Return a line of code as text that keeps its indentation."""
    words = line.lstrip(" ")
    indent = "&nbsp;" * (len(line) - len(words))
    return (indent + _escape(words)) or "&nbsp;"
