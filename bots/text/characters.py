"""Characters: display width, safe cuts between graphemes. Pure."""

import unicodedata

_REACH = 64
"""How far back a cut looks for the start of a grapheme, characters. Longer clusters are hostile."""

_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf", "Mn"})
_JOINER = "\u200d"


def width(text: str) -> int:
    """Return the number of columns of a text in a monospace font: 2 for CJK and emoji, 0 for combining marks.

    >>> width("ab"), width("中文"), width("e\u0301")
    (2, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 code units, the unit of Telegram's limits and offsets.

    >>> utf16_length("a中😀")
    4
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def is_right_to_left(text: str) -> bool:
    r"""Return whether the first letter with a direction belongs to a right-to-left script.

    >>> is_right_to_left("1. שלום hello"), is_right_to_left("hello שלום")
    (True, False)
    """
    for char in text:
        direction = unicodedata.bidirectional(char)
        if direction in {"R", "AL"}:
            return True
        if direction == "L":
            return False
    return False


def is_visible(text: str) -> bool:
    r"""Return whether a text has visible characters.

    >>> is_visible("a"), is_visible(" \u200b")
    (True, False)
    """
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


def safe_cut(text: str, at: int) -> int:
    r"""Return the last position <= `at` that does not cut a grapheme; `at` itself if none is near.

    >>> safe_cut("ab", 1), safe_cut("xe\u0301", 2), safe_cut("x\U0001f469\u200d\U0001f680", 2)
    (1, 1, 1)
    """
    if at >= len(text):
        return len(text)
    for position in range(at, max(at - _REACH, 0), -1):
        if not _is_joined(text, position):
            return position
    return at


def _is_joined(text: str, at: int) -> bool:
    """Return whether the characters on both sides of a position belong to one grapheme."""
    before, after = text[at - 1], text[at]
    if after.isascii() or before == "\n":
        return False
    if before == _JOINER or _is_extender(after):
        return True
    if _is_regional(before) and _is_regional(after):
        return _flags_before(text, at) % 2 == 1
    return "\u1160" <= after <= "\u11ff" and "\u1100" <= before <= "\u11ff"


def _is_extender(char: str) -> bool:
    if (
        char == _JOINER
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
    ):
        return True
    return unicodedata.category(char) in {"Mn", "Me", "Mc"}


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    count = 0
    while count < _REACH and at - count > 0 and _is_regional(text[at - count - 1]):
        count += 1
    return count
