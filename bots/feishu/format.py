"""Markdown in the dialect of Feishu's card JSON 2.0 `markdown` element. Pure."""

import json
import re

from bots.text.links import escape_url, is_clickable_url
from bots.text.markdown import close_open, parse
from bots.text.measure import MeasuredSize
from bots.text.renderer import fence, render_blocks
from bots.text.tree import Block, ImageInline, Table, Text, walk

__all__ = ["fits", "render"]

MAX_BYTES = 28_000
"""Bytes of one card's text inside the request: the platform allows 30 KB for the whole body."""

MAX_TABLES = 3
"""Tables of one card; one more gives 230099 with sub code 11310."""

_JOINER = "\u2060"
"""WORD JOINER: invisible, and no part of any live token."""

_ENTITY = re.compile(r"&(?=#?\w{1,32};)")
_MENTION_ALL = re.compile("@(?=_all|_user)")
_IMAGE = re.compile(r"!(?=\[)")
"""What Feishu may take for an image, also unfinished: one without a key fails the whole card (200570)."""

_LINK = re.compile(r"\](?=\()")
"""What Feishu may take for a link though it is none here: one to `javascript:` or `file:`."""

_TAG = re.compile(r"<(?=/?\s*(?:at|person)\b)", re.IGNORECASE)
_SPECIAL = {char: f"&#{ord(char)};" for char in "!\"#$%'()*+,-./:;=?@[\\]^_`{|}~"}


def render(markdown: str, *, partial: bool = False) -> str:
    """Render the text of a card; "" for no text. Mentions, fonts and other tags in it are inert.

    Args:
        markdown: A reply, or a piece of one.
        partial: The text still grows: close what is open at its end.

    >>> render("# Hi <at id=all></at>")
    '#### Hi &lt;at id=all>&lt;/at>'
    """
    return _emit(parse(close_open(markdown) if partial else markdown)).strip("\n")


def fits(markdown: str) -> MeasuredSize:
    """Tell whether a reply is one card: bytes as sent (JSON in JSON, UTF-8) and tables within the limits."""
    if len(markdown) > MAX_BYTES * 2:
        return MeasuredSize(share=len(markdown) / MAX_BYTES)
    blocks = parse(markdown)
    tables = sum(isinstance(block, Table) for block in walk(blocks))
    return MeasuredSize(share=max(tables / MAX_TABLES, _sent_bytes(_emit(blocks)) / MAX_BYTES))


def _sent_bytes(text: str) -> int:
    once = json.dumps(text, ensure_ascii=False)
    return len(json.dumps(once, ensure_ascii=False).encode())


def _emit(blocks: tuple[Block, ...]) -> str:
    return render_blocks(blocks, _Feishu(), flat_code=True)


class _Feishu:
    """Feishu escapes with HTML entities, knows no mailto links, shows images by their keys alone."""

    def __init__(self) -> None:
        self._tables = 0

    def text(self, text: Text) -> str:
        if text.source != text.text:  # an escape or an entity: one character
            return {"<": "&lt;", ">": "&gt;", "&": "&amp;", **_SPECIAL}.get(text.text, text.text)
        inert = _IMAGE.sub(f"!{_JOINER}", _ENTITY.sub("&amp;", text.text).replace("<", "&lt;"))
        inert = _LINK.sub(f"]{_JOINER}", inert)
        return re.sub(r"@(?=_all|_user|\Z)", f"@{_JOINER}", inert)

    def code(self, code: str) -> str:
        return _MENTION_ALL.sub(f"@{_JOINER}", _TAG.sub(f"<{_JOINER}", code))

    def link(self, url: str, label: str) -> str:
        if is_clickable_url(url, also=()):
            return f"[{label}]({self.code(escape_url(url))})"
        return f"{label} ({self.text(Text(text=url, source=url))})"

    def image(self, image: ImageInline) -> str:
        words = image.alt.translate({ord("["): "(", ord("]"): ")"}).replace("\n", " ")
        label = self.text(Text(text=words, source=words))
        if re.fullmatch(r"img_[\w-]{1,200}", image.url):
            return f"![{label}]({image.url})"
        return self.link(image.url, label or "image")

    def heading(self, level: int) -> int:
        return 4 if level == 1 else 5

    def table(self, table: str) -> str:
        self._tables += 1
        return table if self._tables <= MAX_TABLES else fence(self.code(table), "")
