"""Renders the Markdown tree as Slack mrkdwn, with every `&`, `<` and `>` of the text escaped. Pure.

Escaped text notifies nobody, because without `parse` and `link_names`, Slack does not look for names in a text
(docs.slack.dev/messaging/formatting-message-text, "Automatic parsing").
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from bots.text import tree
from bots.text.links import escape_url, is_clickable_url
from bots.text.table_grid import table_grid
from bots.text.tree import plain

_MARKS: Mapping[type[tree.Inline], str] = {
    tree.Strong: "*",
    tree.Emphasis: "_",
    tree.Strike: "~",
    tree.Spoiler: "||",
}
_HALF = re.compile(r"(?:&[a-z]{0,3}|<[^<>]*)\Z")
_FENCE = "```"

_LONGEST_TOKEN = 2_000
"""How far before a cut to search for an unfinished link, characters."""


def escape(text: str) -> str:
    """Escape plain text for a `text` field or a mrkdwn object.

    >>> escape("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def render_mrkdwn(blocks: Sequence[tree.Block], *, limit: int) -> str:
    """Write blocks, without `Details` among them, as mrkdwn of at most `limit` characters (>= 10).

    A cut text ends with an ellipsis.
    """
    parts: list[str] = []
    size = 0
    for block in blocks:
        parts.append(_block(block))
        size += len(parts[-1]) + 2
        if size > limit:
            break
    return _cut("\n\n".join(parts).strip("\n"), limit)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = text[: limit - len(_FENCE) - 2]
    head = head[:-_LONGEST_TOKEN] + _HALF.sub("", head[-_LONGEST_TOKEN:])
    return f"{head}…\n{_FENCE}" if head.count(_FENCE) % 2 else f"{head}…"


def _block(block: tree.Block) -> str:  # noqa: PLR0911 - one return per kind
    match block:
        case tree.HeadingBlock(children=children):
            words = escape(plain(children).replace("\n", " "))
            return f"*{words}*" if words.strip() else ""
        case tree.Paragraph(children=children):
            return _inlines(children)
        case tree.ListBlock():
            return _listing(block)
        case tree.Quote(children=children):
            return "\n".join(f"> {line}" for line in _stack(children).split("\n"))
        case tree.CodeBlock(text=text):
            return _pre(text)
        case tree.Table():
            return _pre(table_grid(block))
        case _:
            return "———"


def _stack(blocks: Iterable[tree.Block]) -> str:
    return "\n".join(map(_block, blocks))


def _listing(listing: tree.ListBlock) -> str:
    lines = []
    for index, item in enumerate(listing.items):
        marker = "• " if listing.start is None else f"{listing.start + index}. "
        if (check := listing.checks[index]) is not None:
            marker += "☑ " if check else "☐ "
        first, *rest = _stack(item).split("\n")
        lines.append(marker + first)
        lines += [f"    {line}" for line in rest]
    return "\n".join(lines)


def _pre(code: str) -> str:
    """Fence code. mrkdwn has only one kind of fence, so code that contains a fence becomes text."""
    return escape(code) if _FENCE in code else f"{_FENCE}\n{escape(code)}\n{_FENCE}"


def _inlines(inlines: Iterable[tree.Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: tree.Inline) -> str:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text):
            return escape(text)
        case tree.Code(text=text):
            return f"`{escape(text)}`" if "`" not in text and text.strip() else escape(text)
        case tree.Break():
            return "\n"
        case tree.Link(url=url, children=children):
            return _link(url, plain(children))
        case tree.ImageInline(url=url, alt=alt):
            return _link(url, alt or "image")
        case _:
            return _styled(inline)


def _styled(inline: tree.Style) -> str:
    inner = _inlines(inline.children)
    mark = _MARKS[type(inline)]
    return f"{mark}{inner}{mark}" if inner.strip() else inner


def _link(url: str, label: str) -> str:
    words = escape(label.replace("\n", " "))
    if not is_clickable_url(url):
        return f"{words} ({escape(url)})"
    return f"<{escape(escape_url(url))}|{words}>" if words.strip() else escape(url)
