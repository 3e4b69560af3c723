"""Splits a line into the rows that it takes in a terminal. Pure; takes linear time."""

import re

from prompt_toolkit.utils import get_cwidth

_STYLE_OR_CHARACTER = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_NO_ROW_START = frozenset("，。、！？：；）】》」』”’…")
_WIDE = 2


def wrap_line(line: str, columns: int, *, cut_words: bool = True) -> list[str]:
    r"""Return the rows of a line, split between words or between Chinese characters.

    ANSI styles take no columns, and Chinese characters take two.

    Args:
        line: One line.
        columns: The terminal's width, at least 2.
        cut_words: Whether to cut a word that is longer than a row. If not, its row is longer: the terminal shows it on
            several rows, but copies it in one piece.

    >>> wrap_line("one two three", 8), wrap_line("\x1b[1mabc\x1b[22md", 3), wrap_line("", 5)
    (['one two', 'three'], ['\x1b[1mabc\x1b[22m', 'd'], [''])
    >>> wrap_line("中文字", 5), wrap_line("a https://example.org", 8, cut_words=False)
    (['中文', '字'], ['a', 'https://example.org'])
    """
    rows: list[str] = []
    row: list[tuple[str, int]] = []
    width = break_at = 0
    for piece in _STYLE_OR_CHARACTER.findall(line.expandtabs()):
        cells = 0 if piece.startswith("\x1b") else get_cwidth(piece)
        is_space = piece == " "
        if _may_break(row, piece, cells):
            break_at = len(row)
        while row and width + cells > columns and not is_space and (break_at or cut_words):
            at = break_at or len(row)
            rows.append(_joined(row[:at]).rstrip(" "))
            row, break_at = row[at:], 0
            width = sum(size for _, size in row)
        if is_space and width + cells > columns:
            # The row ends here. More blanks at its end are not shown.
            break_at = len(row)
            continue
        row.append((piece, cells))
        width += cells
    return [*rows, _joined(row)]


def _may_break(row: list[tuple[str, int]], piece: str, cells: int) -> bool:
    """Return whether a row may end before a piece."""
    if not cells or piece in _NO_ROW_START:
        return False
    before, size = next(((one, size) for one, size in reversed(row) if size), ("", 0))
    if before == " ":
        return piece != " " and any(one != " " and size for one, size in row)
    return bool(size) and _WIDE in (size, cells)


def _joined(row: list[tuple[str, int]]) -> str:
    return "".join(piece for piece, _ in row)
