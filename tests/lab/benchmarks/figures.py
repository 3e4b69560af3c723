"""The figures of benchmarks with their bars, and their output."""

import os
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_WIDTHS = (66, 18, 14, 8)
QUICK = "PARLEY_BENCH_QUICK"
"""Set this variable for fewer rounds: `make bench-quick`."""


def rounds(full: int) -> int:
    """Return how often to measure: `full` times, or once in a quick run."""
    return 1 if os.environ.get(QUICK) else full


class Figure(NamedTuple):
    """One measured number.

    Attributes:
        what: The measured quantity.
        value: The number.
        unit: Its unit.
        bar: The bar of SPEC 8, such as "< 1.5" or ">= 300"; "" = none.
        peers: Figures of other software, with their source.
    """

    what: str
    value: float
    unit: str
    bar: str = ""
    peers: str = ""


def verdict(figure: Figure) -> str:
    """Return whether the bar is met; "" without a bar.

    >>> [verdict(Figure("", value, "s", bar)) for value, bar in [(1, "< 1"), (1, "<= 1"), (2, ">= 1"), (2, "")]]
    ['MISSED', 'met', 'met', '']
    """
    found = re.fullmatch(r"(<=|>=|<|>|=) ([\d.,]+)", figure.bar)
    if found is None:
        return ""
    sign, limit = found[1], float(found[2].replace(",", ""))
    kept = {
        "<": figure.value < limit,
        "<=": figure.value <= limit,
        ">": figure.value > limit,
        ">=": figure.value >= limit,
        "=": figure.value == limit,
    }[sign]
    return "met" if kept else "MISSED"


def value(figure: Figure) -> str:
    """Return the number with its unit.

    >>> value(Figure("", 1234.5, "msg/s")), value(Figure("", 1.104, "x"))
    ('1,234 msg/s', '1.10 x')
    """
    digits = f"{figure.value:,.0f}" if abs(figure.value) >= 1000 else f"{figure.value:,.2f}"
    return f"{digits} {figure.unit}"


def line(figure: Figure) -> str:
    """Return one row of the table."""
    cells = (figure.what, value(figure), figure.bar, verdict(figure))
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"{' '.join(padded)} {figure.peers}".rstrip()


def head() -> str:
    """Return the table's head."""
    names = ("what", "figure", "bar", "verdict")
    padded = (name.ljust(width) for name, width in zip(names, _WIDTHS, strict=True))
    return f"{' '.join(padded)} peers"


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of all values do not exceed.

    >>> percentile(range(1, 101), 0.99), percentile([3.0], 0.99)
    (99, 3.0)
    """
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, round(share * len(ordered)) - 1))]


def paired(
    name: str,
    unit: str,
    bar: str,
    pairs: Sequence[tuple[float, float]],
    *,
    sides: tuple[str, str] = ("bare", "Parley"),
    peers: str = "",
) -> list[Figure]:
    """Return the medians of both sides and of the ratio of Parley's value to the reference's of the same round.

    Args:
        name: The measured quantity.
        unit: Its unit.
        bar: The bar of the ratio.
        pairs: For each round, the reference's value and Parley's.
        sides: The names of the reference and of Parley.
        peers: Figures of other software.

    >>> [(figure.what, figure.value) for figure in paired("CPU", "ms", "", [(10.0, 10.0), (10.0, 12.0), (8.0, 8.8)])]
    [('CPU, bare', 10.0), ('CPU, Parley', 10.0), ('CPU, ratio (1.00 to 1.20)', 1.1)]
    """
    theirs, own = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(ours / reference for reference, ours in pairs)
    return [
        Figure(f"{name}, {sides[0]}", theirs, unit),
        Figure(f"{name}, {sides[1]}", own, unit, "", peers),
        Figure(
            f"{name}, ratio ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            statistics.median(ratios),
            "x",
            bar,
        ),
    ]
