"""Text tables and times for the terminal. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

MAX_COLUMN_CHARS = 60


def format_table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Return a table with a header and aligned columns, without unprintable characters.

    >>> print(format_table(["id", "name"], [[1, "a"], [22, None]]))
    id  name
    1   a
    22  -
    """
    cells = [[_format_cell(value) for value in line] for line in (head, *lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _format_cell(value: object) -> str:
    text = "".join(char for char in str(value) if char.isprintable()) if value is not None else ""
    return text[:MAX_COLUMN_CHARS] or "-"


def format_time(stamp: str | None) -> str | None:
    """Format an ISO 8601 time for tables: UTC, to the second.

    >>> format_time("2026-07-01T12:00:00.250000+02:00"), format_time(None)
    ('2026-07-01 10:00:00Z', None)
    """
    if stamp is None:
        return None
    return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
