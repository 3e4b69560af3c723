"""The text format of Prometheus. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.runtime.counters import DurationHistogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A family of series.

    Attributes:
        help: One line; it also stands in the reference.
        labels: The names of all its labels.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Page:
    """The lines of one answer; each family's head stands before its first series."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._begun: set[str] = set()

    def add(self, metric: Metric, value: float, *labels: object) -> None:
        r"""Add a series.

        >>> page, hits = Page(), Metric(name="hits", kind="counter", help="Hits.", labels=("who",))
        >>> page.add(hits, 3, 'a "b"\n')
        >>> print(page.text())
        # HELP hits Hits.
        # TYPE hits counter
        hits{who="a \"b\"\n"} 3
        <BLANKLINE>
        """
        self._begin(metric)
        self._line(metric.name, dict(zip(metric.labels, labels, strict=True)), value)

    def add_durations(self, metric: Metric, durations: DurationHistogram) -> None:
        """Add a histogram."""
        self._begin(metric)
        for bound, count in durations.cumulative():
            self._line(f"{metric.name}_bucket", {"le": number(bound)}, count)
        self._line(f"{metric.name}_bucket", {"le": "+Inf"}, durations.count)
        self._line(f"{metric.name}_sum", {}, durations.total_s)
        self._line(f"{metric.name}_count", {}, durations.count)

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"

    def _begin(self, metric: Metric) -> None:
        if metric.name not in self._begun:
            self._begun.add(metric.name)
            self._lines += [
                f"# HELP {metric.name} {metric.help}",
                f"# TYPE {metric.name} {metric.kind}",
            ]

    def _line(self, name: str, labels: Mapping[str, object], value: float) -> None:
        shown = ",".join(f'{label}="{_quoted(str(text))}"' for label, text in labels.items())
        self._lines.append(
            f"{name}{{{shown}}} {number(value)}" if shown else f"{name} {number(value)}"
        )


def number(value: float) -> str:
    """Return a number as Prometheus reads it.

    >>> number(3.0), number(0.25), number(True)
    ('3', '0.25', '1')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
