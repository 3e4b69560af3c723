"""Finds how much text fits into a message, with few renderings. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bots.text.characters import safe_cut

_TOLERANCE = 8
"""Up to 1/8 of a message may stay empty, because filling it is not worth another rendering."""

RENDERED_KEPT = 64
"""Number of rendered messages that each platform caches, because an answer is split and sent soon after."""

_FIRST = 1_000
"""Length of the first guess, characters: cheap to render, and long enough to learn from."""


Fits: TypeAlias = Callable[[str], bool]
"""Returns whether Markdown fits into one message. A part of a fitting text is assumed to fit too."""

Wrap: TypeAlias = Callable[[Sequence[str]], str]
"""Turns rows into Markdown: lines of code into a fence, or table rows into a table with a header."""


class SizeEstimator:
    """Measures which texts fit, each only once, and learns how much source fills a message.

    Args:
        fits: See `Fits`.
        room: Estimated length of the source that fills a message, characters.
    """

    def __init__(self, fits: Fits, room: int = _FIRST) -> None:
        self._fits = fits
        self._room = room
        self._answers: dict[str, bool] = {}

    def __call__(self, piece: str) -> bool:
        """Return whether a piece fits."""
        if piece not in self._answers:
            self._answers[piece] = self._fits(piece)
        return self._answers[piece]

    def inside(self, wrap: Callable[[str], str]) -> "SizeEstimator":
        """Return the estimator for the content of a wrapper, such as a quote or an item."""
        return SizeEstimator(lambda piece: self(wrap(piece)), self._room)

    def most(
        self, ends: Sequence[int], ask: Callable[[int], bool], *, at: int = 0, base: int = 0
    ) -> int:
        """Return approximately how many parts fit together.

        Args:
            ends: Where each part ends in the source, in characters.
            ask: Returns whether the first n parts fit, n >= 1.
            at: The first part.
            base: Where the first part begins.
        """
        guess = bisect_right(ends, base + self._room, lo=at) - at
        count = search_largest(len(ends) - at, guess, ask)
        if count:
            self._room = max(1, ends[at + count - 1] - base)
        return count


def search_largest(limit: int, guess: int, ok: Callable[[int], bool]) -> int:
    """Return approximately the largest n in 1..limit with ok(n), or 0, in few calls close to n.

    >>> search_largest(1000, 8, lambda n: n <= 27), search_largest(5, 8, lambda n: False)
    (27, 0)
    >>> search_largest(3, 1, lambda n: True)
    3
    """
    if limit < 1:
        return 0
    probe = min(max(guess, 1), limit)
    step = max(1, probe // 8)
    if ok(probe):
        low, high = probe, limit + 1
        while low + step <= limit:
            if not ok(low + step):
                high = low + step
                break
            low, step = low + step, step * 2
    else:
        low, high = 0, probe
        while high - step > 0:
            if ok(high - step):
                low = high - step
                break
            high, step = high - step, step * 2
    return _narrow(low, high, ok)


def _narrow(low: int, high: int, ok: Callable[[int], bool]) -> int:
    while high - low > 1 + low // _TOLERANCE:
        middle = (low + high) // 2
        if ok(middle):
            low = middle
        else:
            high = middle
    return low


def longest_fitting(text: str, gauge: SizeEstimator, ok: Fits) -> int:
    """Return how many characters of a text fit, or 0. Avoids cutting a grapheme."""
    most = gauge.most(range(1, len(text) + 1), lambda size: ok(text[: safe_cut(text, size)]))
    return safe_cut(text, most) if most else 0


def chop_text(text: str, gauge: SizeEstimator) -> list[str]:
    """Split a text at any character, as a last resort. A character that does not fit becomes a separate piece.

    >>> chop_text("abcde", SizeEstimator(lambda piece: len(piece) <= 2))
    ['ab', 'cd', 'e']
    """
    pieces = []
    while text:
        size = longest_fitting(text, gauge, gauge) or 1
        pieces.append(text[:size])
        text = text[size:]
    return pieces
