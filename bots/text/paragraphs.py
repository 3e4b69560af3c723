"""Splits a paragraph: at lines, sentences, words, or else between graphemes. Pure."""

import re

from bots.text.characters import safe_cut
from bots.text.delimiters import closing_delimiters, scan_delimiters
from bots.text.literals import LiteralSpans
from bots.text.measure import SizeEstimator, chop_text

_SENTENCE = re.compile(r"[.!?…][\"')\]*_]{0,4}\s|[。！？；]")
_LEAD = re.compile(r"(?:\d{1,9}(?=[.)](?:\s|\Z))|(?=(?:[-+*]|#{1,6})(?:\s|\Z)|>|```|~~~|===|---))")
_ENTITY = re.compile(r"&#?\w{0,32}\Z")
_MARKS = "*_~`\\"
_REACH = 64

_LONGEST_LITERAL = 2_000
"""Maximum length of the part of a literal span after a cut, characters. Longer spans may be cut."""

_STOP = 6
"""Maximum number of characters that belong to the end of a sentence."""

_ESCAPE = 2
"""Length of an escaped marker, characters. A cut must come after it. Otherwise, it would be escaped again each time."""


def cut_prose(text: str, gauge: SizeEstimator) -> list[str]:
    """Split inline Markdown into pieces that fit. Emphasis and code that a cut interrupts continue in the next piece.

    >>> cut_prose("one **two three** four", SizeEstimator(lambda piece: len(piece) <= 12))
    ['one **two**', '**three**', 'four']
    """
    literal = set(scan_delimiters(text).opened)
    pieces: list[str] = []
    lead, rest = "", text
    while rest:
        complete, floor = lead + rest, len(lead)

        def ask(size: int, complete: str = complete, floor: int = floor) -> bool:
            return gauge(_close_at(complete, _boundary(complete, size, floor), literal))

        size = gauge.most(range(1, len(complete) + 1), ask)
        if size == len(complete):
            return [*pieces, complete]
        cut = _boundary(complete, size, floor)
        if cut <= floor + _ESCAPE:
            return pieces + chop_text(rest, gauge)
        pieces.append(_close_at(complete, cut, literal))
        lead = "".join(_open_delimiters(complete[:cut], literal))
        rest = (
            complete[cut:].lstrip(" \n")
            if "`" in lead
            else _escape_block_marker(complete[cut:].lstrip())
        )
    return pieces


def _open_delimiters(text: str, literal: set[str]) -> tuple[str, ...]:
    """Return the open delimiters, without those that the text never closes, which are plain characters."""
    return tuple(mark for mark in scan_delimiters(text).opened if mark not in literal)


def _close_at(text: str, size: int, literal: set[str]) -> str:
    if size == len(text):
        return text
    head = text[:size]
    opened = _open_delimiters(head, literal)
    code = opened and opened[-1].startswith("`")
    return (head if code else head.rstrip()) + closing_delimiters(opened)


def _escape_block_marker(text: str) -> str:
    r"""Escape text that would be a block marker at the start of a message.

    >>> _escape_block_marker("- x"), _escape_block_marker("2. x"), _escape_block_marker("-x")
    ('\\- x', '2\\. x', '-x')
    """
    match = _LEAD.match(text)
    return f"{text[: match.end()]}\\{text[match.end() :]}" if match else text


def _boundary(text: str, size: int, floor: int) -> int:
    """Return the best cut at or before `size`, in the second half if there is one."""
    if size >= len(text):
        return size
    half = max(size // 2, floor + 1)
    for cut in (
        text.rfind("\n", half, size),
        _sentence_end(text, max(half - _STOP, floor), size),
        _word_end(text, half, size),
    ):
        if cut > floor:
            return _before_link(text, cut, floor)
    cut = safe_cut(text, size)
    while cut > max(size - _REACH, floor + 1) and _splits_token(text, cut):
        cut -= 1
    return _before_link(text, cut if cut > floor else size, floor)


def _sentence_end(text: str, start: int, end: int) -> int:
    cut = -1
    for match in _SENTENCE.finditer(text, start, end):
        cut = match.end()
    return cut


def _word_end(text: str, start: int, end: int) -> int:
    return max(text.rfind(" ", start, end), text.rfind("\t", start, end))


def _splits_token(text: str, cut: int) -> bool:
    """Return whether a cut splits a delimiter run, an escape or an entity."""
    before, after = text[cut - 1], text[cut] if cut < len(text) else ""
    if before == "\\" or (before == after and before in _MARKS):
        return True
    return _ENTITY.search(text[max(cut - 34, 0) : cut]) is not None


def _before_link(text: str, cut: int, floor: int) -> int:
    """Move a cut inside a link or a literal span to its start, unless that wastes most of the piece."""
    literal = LiteralSpans(text[: cut + _LONGEST_LITERAL]).around(cut)
    if literal is not None and max(floor, cut // 4) < literal.start < cut:
        return literal.start
    scan = scan_delimiters(text[:cut])
    if scan.link is None or scan.link <= max(floor, cut // 4):
        return cut
    return scan.link if re.compile(r"[^\]]{0,2000}\]\(").match(text, scan.link) else cut
