"""Markdown for terminals, with ANSI styles. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pygments import highlight
from pygments.formatters.terminal import TerminalFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import Error, Whitespace
from pygments.util import ClassNotFound

from bots.text import tree
from bots.text.markdown import parse
from bots.text.table_grid import table_grid
from bots.text.tree import plain
from gateway.terminal.wrapping import wrap_line

Background = Literal["dark", "light"]
"""The kind of background of a terminal."""

_BOLD, _ITALIC, _STRIKE = (1, 22), (3, 23), (9, 29)
"""SGR codes that switch a style on and off."""

_STYLES: Mapping[type[tree.Inline], tuple[int, int]] = {
    tree.Strong: _BOLD,
    tree.Emphasis: _ITALIC,
    tree.Strike: _STRIKE,
}


def _formatter(background: Background) -> "TerminalFormatter[str]":
    """Return a formatter that shows text unknown to a lexer like other text, because the code may be incomplete."""
    formatter: TerminalFormatter[str] = TerminalFormatter(bg=background)
    formatter.colorscheme = {**formatter.colorscheme, Whitespace: ("", ""), Error: ("", "")}
    return formatter


@dataclass(frozen=True, slots=True)
class _Theme:
    """Colors for a terminal with a dark or a light background."""

    code: tuple[int, int]
    formatter: "TerminalFormatter[str]"


_THEMES: Mapping[Background, _Theme] = {
    "dark": _Theme((36, 39), _formatter("dark")),
    "light": _Theme((34, 39), _formatter("light")),
}

MAX_COLORED_CHARS = 10_000
"""Maximum length of code with colors, characters. For this length, lexers take up to 20 ms at each change of a growing
answer."""

_RULE = "─" * 20

_LEAST_COLUMNS = 8
"""Minimum width at which text is wrapped, columns."""


def render_markdown(markdown: str, columns: int = 0, background: Background = "dark") -> str:
    r"""Return a text for the terminal. Removes control characters from the text itself.

    `columns`: the width for wrapping prose; code, tables and addresses are not wrapped. 0 = do not wrap.
    `background`: chooses the colors of code.

    >>> render_markdown("# Hi\n\n- **a** [b](https://c.d)")
    '\x1b[1mHi\x1b[22m\n\n• \x1b[1ma\x1b[22m b (https://c.d)'
    >>> render_markdown("- one two three", 9)
    '• one two\n  three'
    """
    theme = _THEMES[background]
    return _blocks(tree.open_details(parse(markdown)), columns, theme, gap="\n\n")


def _blocks(blocks: Iterable[tree.Block], columns: int, theme: _Theme, *, gap: str) -> str:
    return gap.join(_block(block, columns, theme) for block in blocks)


def _block(block: tree.Block, columns: int, theme: _Theme) -> str:  # noqa: PLR0911 - one return per kind
    match block:
        case tree.HeadingBlock(children=children):
            return _wrapped(_styled(plain(children).replace("\n", " "), _BOLD), columns)
        case tree.Paragraph(children=children):
            return _wrapped(_inlines(children, theme), columns)
        case tree.ListBlock():
            return _list(block, columns, theme)
        case tree.Quote(children=children):
            inner = _blocks(children, _inside(columns, "│ "), theme, gap="\n\n")
            return _prefixed(inner, "│ ", "│ ")
        case tree.CodeBlock():
            return _code(block, theme)
        case tree.Table():
            return table_grid(block)
        case _:
            return _RULE


def _wrapped(text: str, columns: int) -> str:
    if columns < _LEAST_COLUMNS:
        return text
    rows = (row for line in text.split("\n") for row in wrap_line(line, columns, cut_words=False))
    return "\n".join(rows)


def _inside(columns: int, prefix: str) -> int:
    """Return the columns that a prefix leaves, but at least the minimum width."""
    return max(columns - len(prefix), _LEAST_COLUMNS) if columns else 0


def _code(block: tree.CodeBlock, theme: _Theme) -> str:
    if len(block.text) <= MAX_COLORED_CHARS:
        with suppress(ClassNotFound):
            # Lexers mark a last line without a line break as an error.
            lexer = get_lexer_by_name(block.language, stripnl=False, ensurenl=True)
            colored = highlight(block.text, lexer, theme.formatter)
            return _prefixed(colored.rstrip("\n"), "  ", "  ")
    return "\n".join(_styled(f"  {line}", theme.code) for line in block.text.split("\n"))


def _list(listing: tree.ListBlock, columns: int, theme: _Theme) -> str:
    gap = "\n" if listing.tight else "\n\n"
    items = []
    for index, item in enumerate(listing.items):
        marker = "• " if listing.start is None else f"{listing.start + index}. "
        if (check := listing.checks[index]) is not None:
            marker += "☑ " if check else "☐ "
        inner = _blocks(item, _inside(columns, marker), theme, gap=gap)
        items.append(_prefixed(inner, marker, " " * len(marker)))
    return gap.join(items)


def _prefixed(text: str, first: str, others: str) -> str:
    return first + text.replace("\n", f"\n{others}")


def _inlines(inlines: Sequence[tree.Inline], theme: _Theme) -> str:
    return "".join(_inline(inline, theme) for inline in inlines)


def _inline(inline: tree.Inline, theme: _Theme) -> str:  # noqa: PLR0911 - one return per kind
    match inline:
        case tree.Text(text=text):
            return text
        case tree.Code(text=text):
            return _styled(text, theme.code)
        case tree.Break():
            return "\n"
        case tree.Link(url=url, children=children):
            label = _inlines(children, theme)
            return url if plain(children) in ("", url) else f"{label} ({url})"
        case tree.ImageInline(url=url, alt=alt):
            return f"{alt or 'image'} ({url})"
        case tree.Spoiler(children=children):
            return f"||{_inlines(children, theme)}||"
        case _:
            return _styled(_inlines(inline.children, theme), _STYLES[type(inline)])


def _styled(text: str, codes: tuple[int, int]) -> str:
    on, off = codes
    return f"\x1b[{on}m{text}\x1b[{off}m"
