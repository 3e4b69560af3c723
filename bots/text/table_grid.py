"""Tables as monospace text, aligned by display width: CJK and emoji take two columns. Pure."""

from bots.text.characters import width
from bots.text.tree import Align, Inline, Table, plain

MAX_COLUMN = 60
"""Widest padding of a cell: one long cell must not widen every row."""


def table_grid(table: Table) -> str:
    r"""Draw a table.

    >>> from bots.text.markdown import parse
    >>> print(table_grid(parse("|名|n|\n|-|-:|\n|a|10|")[0]))
    名 |  n
    ---+---
    a  | 10
    """
    rows = [[_cell(cell) for cell in row] for row in (table.header, *table.rows)]
    sizes = [min(max(map(width, column)), MAX_COLUMN) for column in zip(*rows, strict=True)]
    lines = [" | ".join(map(_padded, row, sizes, table.alignments)).rstrip() for row in rows]
    lines.insert(1, "-+-".join("-" * size for size in sizes))
    return "\n".join(lines)


def _cell(cell: tuple[Inline, ...]) -> str:
    return plain(cell).replace("\n", " ")


def _padded(text: str, size: int, align: Align) -> str:
    free = max(size - width(text), 0)
    match align:
        case "right":
            return " " * free + text
        case "center":
            return " " * (free // 2) + text + " " * (free - free // 2)
        case _:
            return text + " " * free
