r"""Blocks that CommonMark does not have: display formulas and `<details>`. Rules for markdown-it-py, linear.

A formula begins at the start of a line with `$$`, `\\[` or `\\begin{x}`, ends at the end of a line, and contains no
blank line. `<details>` with a `<summary>` begins at the start of a line. If it is not closed, it continues to the end
of the text, like a fence.
"""

import re

from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

_FORMULA = re.compile(r"\$\$(?!\$)|\\\[|\\begin\{([A-Za-z]{1,30}\*?)\}")
_FORMULA_LINES = 100
"""Maximum length of a formula, lines. Any line could begin one, so the search for its end must be short."""

_DETAILS = re.compile(r"<details(?:\s+open(?:=\"\w*\")?)?\s*>", re.IGNORECASE)
_DETAILS_MARK = re.compile(r"<(/?)details\b[^>\n]*>", re.IGNORECASE)
_SUMMARY = re.compile(r"\s*<summary>(.{0,2000}?)</summary>", re.IGNORECASE | re.DOTALL)
_NESTED_DETAILS = 3


def formula_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
    """Read a display formula."""
    opening = _FORMULA.match(state.src, state.bMarks[start] + state.tShift[start])
    if opening is None or opening.end() > state.eMarks[start] or state.is_code_block(start):
        return False
    mark = f"\\end{{{opening[1]}}}" if opening[1] else {"$$": "$$", "\\[": "\\]"}[opening[0]]
    last = _formula_end(state, mark, opening.end(), start, end)
    if last is None:
        return False
    if not silent:
        state.line = last + 1
        token = state.push("formula_block", "", 0)
        token.content = state.getLines(
            start, state.line, state.sCount[start], keepLastLF=False
        ).rstrip()
        token.map = [start, state.line]
    return True


def _formula_end(state: StateBlock, mark: str, position: int, start: int, end: int) -> int | None:
    """Return the last line of a formula; None if it has no end, or if text follows it on that line."""
    for line in range(start, min(end, start + _FORMULA_LINES)):
        if state.isEmpty(line) or (line > start and state.sCount[line] < state.blkIndent):
            return None
        words = state.src[max(position, state.bMarks[line]) : state.eMarks[line]]
        _, found, behind = words.partition(mark)
        if found:
            return None if behind.strip(" \t.,;") else line
    return None


def details_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
    """Read `<details>`: its summary, and the blocks inside."""
    begin = state.bMarks[start] + state.tShift[start]
    depth = state.env.get("details", 0)
    if (
        state.src[begin : begin + 1] != "<"
        or state.is_code_block(start)
        or _DETAILS.match(state.src, begin, state.eMarks[start]) is None
        or depth >= _NESTED_DETAILS
    ):
        return False
    if silent:
        return True
    last = _details_end(state, start, end)
    source = state.getLines(start, last, state.sCount[start], keepLastLF=True)
    state.line = last
    _push_details(state, source, start, depth)
    return True


def _details_end(state: StateBlock, start: int, end: int) -> int:
    """Return the line after the one that closes the details opened at `start`."""
    depth = 0
    for line in range(start, end):
        if not state.isEmpty(line) and state.sCount[line] < state.blkIndent:
            return line
        for found in _DETAILS_MARK.finditer(state.src, state.bMarks[line], state.eMarks[line]):
            depth += -1 if found[1] else 1
        if depth <= 0:
            return line + 1
    return end


def details_parts(source: str) -> tuple[str, str]:
    r"""Return the opening of details with its summary, and the content.

    >>> details_parts("<details><summary>More</summary>\n\nx\n</details>")
    ('<details><summary>More</summary>', '\n\nx\n')
    """
    opening = _DETAILS.match(source)
    begin = opening.end() if opening else 0
    summary = _SUMMARY.match(source, begin)
    begin = summary.end() if summary else begin
    end = len(source.rstrip())
    if source[:end].lower().endswith("</details>"):
        end -= len("</details>")
    return source[:begin], source[begin : max(begin, end)]


def _push_details(state: StateBlock, source: str, start: int, depth: int) -> None:
    opening, content = details_parts(source)
    summary = _SUMMARY.search(opening)
    first = start + opening.count("\n")
    state.push("details_open", "details", 1).map = [start, state.line]
    state.push("summary_open", "summary", 1)
    words = state.push("inline", "", 0)
    words.content = " ".join(summary[1].split()) if summary else ""
    words.map, words.children = [start, start + 1], []
    state.push("summary_close", "summary", -1)
    tokens: list[Token] = []
    state.env["details"] = depth + 1
    state.md.block.parse(content, state.md, state.env, tokens)
    state.env["details"] = depth
    for token in tokens:
        token.level += state.level
        token.map = [line + first for line in token.map] if token.map else None
    state.tokens.extend(tokens)
    state.push("details_close", "details", -1)
