"""How much fits: the search behind the splitter. Pure."""

from collections.abc import Callable, Sequence

from bots.text.characters import safe_cut

Wrap = Callable[[Sequence[str]], str]
"""Makes a piece of some rows: lines into a fence, table rows under their header."""

Fits = Callable[[str], bool]
"""Tells whether a piece of Markdown is one message. A part of what fits is assumed to fit too."""


def largest(limit: int, guess: int, ok: Callable[[int], bool]) -> int:
    """Return about the largest n in 1..limit with ok(n), or 0, in few calls that are all near n.

    The result is exact to 3 %: a full message is not worth a rendering for every last character.

    >>> largest(1000, 8, lambda n: n <= 27), largest(5, 8, lambda n: False), largest(3, 1, lambda n: True)
    (27, 0, 3)
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
    while high - low > 1 + low // 32:
        middle = (low + high) // 2
        if ok(middle):
            low = middle
        else:
            high = middle
    return low


def most_rows(rows: Sequence[str], guess: int, wrap: Wrap, fits: Fits) -> int:
    """Return how many of the first rows fit together, wrapped; or 0."""
    return largest(len(rows), guess, lambda count: fits(wrap(rows[:count])))


def longest(text: str, guess: int, ok: Fits) -> int:
    """Return how many characters of a text fit at most, not cutting a grapheme if avoidable; or 0."""
    most = largest(len(text), guess, lambda size: ok(text[:size]))
    safe = safe_cut(text, most) if most else 0
    return safe if safe == most or ok(text[:safe]) else most


def chop(text: str, fits: Fits) -> list[str]:
    """Cut a text at any character, as the last resort. A character that does not fit goes alone.

    >>> chop("abcde", lambda piece: len(piece) <= 2)
    ['ab', 'cd', 'e']
    """
    pieces, at, guess = [], 0, 1_000
    while at < len(text):
        window = text[at : at + 2 * guess + 64]
        guess = longest(window, guess, fits) or 1
        pieces.append(window[:guess])
        at += guess
    return pieces
