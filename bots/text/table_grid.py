"""Draws tables as monospace text, aligned by display width: CJK and emoji take two columns. Pure."""

from collections.abc import Iterable
from itertools import zip_longest

from bots.text.characters import width
from bots.text.tree import Align, Inline, Table, plain

MAX_COLUMN = 60
"""Maximum width to pad a cell to, because one long cell must not widen every row."""


def table_grid(table: Table) -> str:
    r"""Draw a table.

    >>> from bots.text.markdown import parse
    >>> print(table_grid(parse("|名|n|\n|-|-:|\n|a|10|")[0]))
    名 |  n
    ---+---
    a  | 10
    >>> print(table_grid(parse("|a|b|\n|-|-|\n|x<br>y|z|")[0]))
    a | b
    --+--
    x | z
    y |
    """
    rows = [_lines(row) for row in (table.header, *table.rows)]
    columns = zip(*(line for row in rows for line in row), strict=True)
    sizes = [min(max(map(width, column)), MAX_COLUMN) for column in columns]
    lines = [
        [" | ".join(map(_padded, line, sizes, table.alignments)).rstrip() for line in row]
        for row in rows
    ]
    lines.insert(1, ["-+-".join("-" * size for size in sizes)])
    return "\n".join(line for row in lines for line in row)


def _lines(row: Iterable[Iterable[Inline]]) -> list[tuple[str, ...]]:
    """Return the lines of a row, whose cells may have several lines."""
    cells = [plain(cell).split("\n") for cell in row]
    return list(zip_longest(*cells, fillvalue=""))


def _padded(text: str, size: int, align: Align) -> str:
    free = max(size - width(text), 0)
    match align:
        case "right":
            return " " * free + text
        case "center":
            return " " * (free // 2) + text + " " * (free - free // 2)
        case _:
            return text + " " * free
