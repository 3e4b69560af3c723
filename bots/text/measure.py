"""Finds how much text fits into a message, with few renderings. Pure."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bots.text.characters import safe_cut
from bots.text.memo import Memo, MemoizedMarkdown

_AIM = 0.93
"""Share of a message that a guess aims at: the density of text varies by a few percent."""

_ENOUGH = 0.82
"""Share of a message that is full enough: another rendering costs more than the rest is worth."""

_LEAST = 1 / 64
"""Smallest share that a text counts as: it limits how fast a guess grows."""

_GUESSES = 8
"""Guesses after which the search switches to bisection: the text's size does not predict its share."""

_FIRST = 1_000
"""Characters of the first guess: cheap to render, enough to learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSize:
    """How much of a message a text fills; true if it fits.

    Attributes:
        share: 1.0 = all that a message holds; of what does not fit by far, an estimate.

    >>> bool(MeasuredSize(share=1.0)), bool(MeasuredSize(share=1.01))
    (True, False)
    """

    share: float

    def __bool__(self) -> bool:
        return self.share <= 1


FitResult: TypeAlias = bool | MeasuredSize

Fits: TypeAlias = Callable[[str], FitResult]
"""Returns whether Markdown fits into one message. A part of what fits is assumed to fit too.

An answer that says how full the message is (`MeasuredSize`) saves most of the search.
"""

Wrap: TypeAlias = Callable[[Sequence[str]], str]
"""Makes Markdown of some rows: lines in a fence, table rows below their header."""


class SizeEstimator:
    """Measures what fits, each text only once, and learns how much source fills a message.

    Args:
        fits: See `Fits`.
        room: Characters of source that are thought to fill a message.
    """

    def __init__(self, fits: Fits, room: int = _FIRST) -> None:
        self._fits = fits
        self._room = room
        self._answers: dict[str, FitResult] = {}
        self._memo: Memo = {}

    def __call__(self, piece: str) -> FitResult:
        """Return whether a piece fits."""
        if piece not in self._answers:
            self._answers[piece] = self._fits(MemoizedMarkdown.with_memo(piece, self._memo))
        return self._answers[piece]

    def inside(self, wrap: Callable[[str], str]) -> "SizeEstimator":
        """Return the estimator for the content of a wrapper, such as a quote or an item."""
        return SizeEstimator(lambda piece: self(wrap(piece)), self._room)

    def most(
        self, ends: Sequence[int], ask: Callable[[int], FitResult], *, at: int = 0, base: int = 0
    ) -> int:
        """Return approximately how many parts fit together: up to a sixth of a message may stay empty.

        Args:
            ends: Where each part ends in the source, in characters.
            ask: Tells whether the first n parts fit, n >= 1.
            at: The first part.
            base: Where the first part begins.
        """
        low, high = 0, len(ends) - at + 1
        probe = self._reach(ends, at, base, low, high)
        for _ in range(_GUESSES):
            answer = ask(probe)
            size = ends[at + probe - 1] - base
            if not isinstance(answer, MeasuredSize):
                return self._blind(ends, ask, at, base, probe)
            self._room = max(1, int(size * _AIM / max(answer.share, _LEAST)))
            if answer:
                low = probe
                next_size = ends[min(at + probe, len(ends) - 1)] - base
                if answer.share >= _ENOUGH or (
                    # A line or two do not tell how much more fits: a heading would be a message by itself.
                    answer.share >= _LEAST and next_size > self._room / _AIM
                ):
                    break
            else:
                high = probe
            if high - low <= 1:
                break
            probe = self._reach(ends, at, base, low, high)
        else:
            low = _narrow(low, high, ask)
        return low

    def _reach(self, ends: Sequence[int], at: int, base: int, low: int, high: int) -> int:
        """Return how many parts fit the remaining room, between `low` and `high`, both exclusive."""
        count = bisect_right(ends, base + self._room, lo=at) - at
        return min(max(count, low + 1), high - 1)

    def _blind(
        self, ends: Sequence[int], ask: Callable[[int], FitResult], at: int, base: int, guess: int
    ) -> int:
        """Search without knowing how full a message is."""
        count = search_largest(len(ends) - at, guess, ask)
        if count:
            self._room = max(1, ends[at + count - 1] - base)
        return count


def search_largest(limit: int, guess: int, ok: Callable[[int], FitResult]) -> int:
    """Return approximately the largest n in 1..limit with ok(n), or 0, in few calls close to n.

    The result is exact to 3 %: a full message is not worth a rendering for every last character.

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


def _narrow(low: int, high: int, ok: Callable[[int], FitResult]) -> int:
    while high - low > 1 + low // 32:
        middle = (low + high) // 2
        if ok(middle):
            low = middle
        else:
            high = middle
    return low


def longest_fitting(text: str, gauge: SizeEstimator, ok: Fits) -> int:
    """Return how many characters of a text fit, without cutting a grapheme if possible; or 0."""
    most = gauge.most(range(1, len(text) + 1), lambda size: ok(text[: safe_cut(text, size)]))
    return safe_cut(text, most) if most else 0


def chop_text(text: str, gauge: SizeEstimator) -> list[str]:
    """Split a text at any character, as a last resort. A character that does not fit is a piece by itself.

    >>> chop_text("abcde", SizeEstimator(lambda piece: len(piece) <= 2))
    ['ab', 'cd', 'e']
    """
    pieces = []
    while text:
        size = longest_fitting(text, gauge, gauge) or 1
        pieces.append(text[:size])
        text = text[size:]
    return pieces
