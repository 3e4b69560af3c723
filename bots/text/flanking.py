"""Decides which runs of `*`, `_` and `~` can open and close emphasis: CommonMark's rule, adapted to CJK text. Pure."""

import unicodedata

from markdown_it.common.utils import isMdAsciiPunct, isPunctChar


def flanking(before: str, after: str) -> tuple[bool, bool]:
    """Return whether a delimiter run between two characters is left- and right-flanking.

    CommonMark's rule with two changes for CJK text, which has no spaces between words: CJK punctuation
    counts as a letter, and other punctuation may stand next to a CJK character as if next to a space.

    >>> flanking("：", "冒"), flanking(" ", "a"), flanking("a", ".")
    ((True, True), (True, False), (False, True))
    """
    blank_before, blank_after = before.isspace(), after.isspace()
    cjk_before, cjk_after = is_cjk(before), is_cjk(after)
    dot_before = not cjk_before and is_punctuation(before)
    dot_after = not cjk_after and is_punctuation(after)
    left = not blank_after and (not dot_after or blank_before or dot_before or cjk_before)
    right = not blank_before and (not dot_before or blank_after or dot_after or cjk_after)
    return left, right


def is_cjk(char: str) -> bool:
    """Return whether a character is of a script without spaces between words: Han, kana, Hangul, their punctuation."""
    if char < "\u1100" or "\U0001f000" <= char <= "\U0001fbff":
        return False
    return unicodedata.east_asian_width(char) in "WFH"


def is_punctuation(char: str) -> bool:
    """Return whether CommonMark counts a character as punctuation."""
    return isMdAsciiPunct(ord(char)) or isPunctChar(char)


def delimiters(source: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether the run `source[start:end]` of one of `*_~` can open and can close."""
    before = source[start - 1] if start else " "
    after = source[end] if end < len(source) else " "
    left, right = flanking(before, after)
    if source[start] != "_":
        return left, right
    return (
        left and (not right or is_punctuation(before)),
        right and (not left or is_punctuation(after)),
    )
