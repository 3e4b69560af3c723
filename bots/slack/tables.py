"""Renders Markdown tables as Slack `table` blocks. Cells are rich text, where only links are active. Pure.

The block: docs.slack.dev/reference/block-kit/blocks/table-block.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bots.slack.rich_text_blocks import section
from bots.text import tree
from bots.text.tree import plain

MAX_ROWS = 100
MAX_COLUMNS = 20

MAX_CHARS = 10_000
"""Maximum total length of all cells, characters."""


def native_table(block: tree.Block) -> tree.Table | None:
    """Return a block as a table, if Slack's `table` block has room for its columns."""
    return block if isinstance(block, tree.Table) and len(block.header) <= MAX_COLUMNS else None


def table_chars(table: tree.Table) -> int:
    """Return the total length of all cells, characters."""
    return sum(len(plain(cell)) for row in (table.header, *table.rows) for cell in row)


def table_load(tables: Sequence[tree.Table]) -> float:
    """Return how much of a message tables take: 1.0 = one table of maximum size, 2 = two tables."""
    sizes = [
        max((len(table.rows) + 1) / MAX_ROWS, table_chars(table) / MAX_CHARS) for table in tables
    ]
    return max(sizes, default=0.0) if len(sizes) < 2 else max(len(sizes), *sizes)  # noqa: PLR2004


def table_block(table: tree.Table) -> dict[str, Any]:
    r"""Return the block of a table that fits.

    >>> from bots.text.markdown import parse
    >>> block = table_block(parse("|a|\n|-|\n|**b**|")[0])
    >>> block["rows"][1][0]["elements"][0]["elements"]
    [{'type': 'text', 'text': 'b', 'style': {'bold': True}}]
    """
    settings = [{"align": align or "left", "is_wrapped": True} for align in table.alignments]
    header = [_cell(cell, {"bold": True}) for cell in table.header]
    rows = [[_cell(cell, {}) for cell in row] for row in table.rows]
    return {"type": "table", "column_settings": settings, "rows": [header, *rows]}


def _cell(inlines: Iterable[tree.Inline], style: Mapping[str, bool]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [section(inlines, style)]}
