"""Splits a line into the rows that it takes in a terminal. Pure."""

import re

from prompt_toolkit.utils import get_cwidth

_STYLE_OR_CHARACTER = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)


def wrap_line(line: str, columns: int) -> list[str]:
    r"""Return the rows of a line; ANSI styles take no room, Chinese characters two columns.

    >>> wrap_line("\x1b[1mabc\x1b[22md", 3), wrap_line("中文字", 5), wrap_line("", 5)
    (['\x1b[1mabc\x1b[22m', 'd'], ['中文', '字'], [''])
    """
    rows, width = [""], 0
    for piece in _STYLE_OR_CHARACTER.findall(line.expandtabs()):
        cells = 0 if piece.startswith("\x1b") else get_cwidth(piece)
        if width + cells > columns:
            rows.append("")
            width = 0
        rows[-1] += piece
        width += cells
    return rows
