"""Markdown for terminals, with ANSI styles. Pure."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from pygments import highlight
from pygments.formatters.terminal import TerminalFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import Whitespace
from pygments.util import ClassNotFound

from bots.text import tree
from bots.text.markdown import parse
from bots.text.table_grid import table_grid
from bots.text.tree import plain

_BOLD, _ITALIC, _STRIKE, _CODE = (1, 22), (3, 23), (9, 29), (36, 39)
"""SGR codes that switch a style on and off."""

_STYLES = {tree.Strong: _BOLD, tree.Emphasis: _ITALIC, tree.Strike: _STRIKE}
_COLORS: TerminalFormatter[str] = TerminalFormatter(bg="dark")
_COLORS.colorscheme = {**_COLORS.colorscheme, Whitespace: ("", "")}

MAX_COLORED_CHARS = 10_000
"""Longer code is shown in one color: lexers take up to 20 ms for this much, at each change of a growing answer."""

_RULE = "─" * 20


def render_markdown(markdown: str) -> str:
    r"""Return a text for the terminal; control characters of the text itself are removed.

    >>> render_markdown("# Hi\n\n- **a** [b](https://c.d)")
    '\x1b[1mHi\x1b[22m\n\n• \x1b[1ma\x1b[22m b (https://c.d)'
    """
    return _blocks(parse(markdown), gap="\n\n")


def _blocks(blocks: Iterable[tree.Block], *, gap: str) -> str:
    return gap.join(map(_block, blocks))


def _block(block: tree.Block) -> str:  # noqa: PLR0911 - one return per kind
    match block:
        case tree.HeadingBlock(children=children):
            return _styled(plain(children).replace("\n", " "), _BOLD)
        case tree.Paragraph(children=children):
            return _inlines(children)
        case tree.ListBlock():
            return _list(block)
        case tree.Quote(children=children):
            return _prefixed(_blocks(children, gap="\n\n"), "│ ", "│ ")
        case tree.CodeBlock():
            return _code(block)
        case tree.Table():
            return table_grid(block)
        case tree.Rule():
            return _RULE


def _code(block: tree.CodeBlock) -> str:
    if len(block.text) <= MAX_COLORED_CHARS:
        with suppress(ClassNotFound):
            lexer = get_lexer_by_name(block.language, stripnl=False, ensurenl=False)
            colored = highlight(block.text, lexer, _COLORS)
            return _prefixed(colored.rstrip("\n"), "  ", "  ")
    return "\n".join(_styled(f"  {line}", _CODE) for line in block.text.split("\n"))


def _list(listing: tree.ListBlock) -> str:
    gap = "\n" if listing.tight else "\n\n"
    items = []
    for index, item in enumerate(listing.items):
        marker = "• " if listing.start is None else f"{listing.start + index}. "
        items.append(_prefixed(_blocks(item, gap=gap), marker, " " * len(marker)))
    return gap.join(items)


def _prefixed(text: str, first: str, others: str) -> str:
    return first + text.replace("\n", f"\n{others}")


def _inlines(inlines: Sequence[tree.Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: tree.Inline) -> str:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text):
            return text
        case tree.Code(text=text):
            return _styled(text, _CODE)
        case tree.Break():
            return "\n"
        case tree.Link(url=url, children=children):
            label = _inlines(children)
            return url if plain(children) in ("", url) else f"{label} ({url})"
        case tree.ImageInline(url=url, alt=alt):
            return f"{alt or 'image'} ({url})"
        case _:
            return _styled(_inlines(inline.children), _STYLES[type(inline)])


def _styled(text: str, codes: tuple[int, int]) -> str:
    on, off = codes
    return f"\x1b[{on}m{text}\x1b[{off}m"
