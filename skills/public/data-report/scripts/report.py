"""Reports on a CSV file: statistics for each column, groups, anomalies, and charts as SVG. Needs only Python."""

import argparse
import csv
import math
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

MAX_ROWS = 500_000
MAX_CHARTS = 4
MAX_BARS = 15
BINS = 12
MANY = 0.95  # the share of cells that must be numbers in a column of numbers

_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_CONTINENTAL = re.compile(r"[-+]?(\d{1,3}(\.\d{3})+|\d+),\d+")
_EDGES = re.compile(r"^[\s$€£¥]+|[\s%$€£¥]+$")


@dataclass(frozen=True)
class Table:
    """A table: the names of its columns, and rows of the same length."""

    columns: list[str]
    rows: list[list[str]]
    is_cut: bool = False

    def cells(self, index: int) -> list[str]:
        """Return the cells of a column, without surrounding spaces."""
        return [row[index].strip() for row in self.rows]


def number(cell: str) -> float | None:
    """Parse a cell as a number: plain, with grouped thousands, or with a decimal comma."""
    text = _EDGES.sub("", cell)
    if _PLAIN.fullmatch(text):
        return float(text)
    if _GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    if _CONTINENTAL.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    return None


def numbers(cells: Iterable[str]) -> list[float] | None:
    """Return the numbers of a column; None if it is not a column of numbers."""
    filled = [cell for cell in cells if cell]
    found = [value for value in map(number, filled) if value is not None and math.isfinite(value)]
    return found if found and len(found) >= MANY * len(filled) else None


def read(path: Path, delimiter: str | None) -> Table:
    """Read the file. Short rows are filled, and cells beyond the header are dropped."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", errors="replace")
    lines = text.splitlines()
    reader = csv.reader(lines, delimiter=delimiter or guess(lines[:20]))
    filled = (row for row in reader if any(cell.strip() for cell in row))
    header = [name.strip() or f"column {place}" for place, name in enumerate(next(filled, []), 1)]
    rows: list[list[str]] = []
    for row in filled:
        if len(rows) == MAX_ROWS:
            return Table(header, rows, is_cut=True)
        rows.append((row + [""] * len(header))[: len(header)])
    return Table(header, rows)


def guess(lines: Sequence[str]) -> str:
    """Return the delimiter that occurs most evenly in the first lines."""

    def evenness(sign: str) -> tuple[int, int]:
        counts = [line.count(sign) for line in lines if line.strip()]
        return (min(counts, default=0), sum(counts))

    return max((",", ";", "\t", "|"), key=evenness)


def shown(value: float) -> str:
    """Format a number for people."""
    if value == int(value) and abs(value) < 1e15:  # noqa: PLR2004 - larger floats are not exact
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}"


def cell(text: str, limit: int = 40) -> str:
    """Return a text that fits in a cell of a Markdown table."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return short.replace("|", "\\|").replace("\n", " ")


def column_lines(table: Table) -> list[str]:
    """Return the table of columns."""
    lines = ["| column | filled | different | figures |", "|---|---|---|---|"]
    for index, name in enumerate(table.columns):
        cells = table.cells(index)
        filled = [text for text in cells if text]
        values = numbers(cells)
        if values is not None:
            figures = (
                f"sum {shown(math.fsum(values))}, mean {shown(statistics.fmean(values))}, "
                f"median {shown(statistics.median(values))}, {shown(min(values))} to {shown(max(values))}"
            )
        else:
            top = Counter(filled).most_common(3)
            figures = ", ".join(f"{cell(text, 24)} ({count})" for text, count in top)
        lines.append(f"| {cell(name)} | {len(filled)} | {len(set(filled))} | {figures} |")
    return lines


def groups(table: Table, by: int, value: int | None) -> list[tuple[str, float]]:
    """Return the sum (or the number of rows) for each value of a column, largest first."""
    sums: dict[str, list[float]] = defaultdict(list)
    keys = table.cells(by)
    amounts = [1.0] * len(keys) if value is None else [number(c) or 0.0 for c in table.cells(value)]
    for key, amount in zip(keys, amounts, strict=True):
        sums[key or "(empty)"].append(amount)
    totals = [(key, math.fsum(parts)) for key, parts in sums.items()]
    return sorted(totals, key=lambda pair: (-pair[1], pair[0]))


def oddities(table: Table) -> list[str]:
    """Return problems that people should check before they trust the figures."""
    found = []
    repeated = len(table.rows) - len({tuple(row) for row in table.rows})
    if repeated:
        found.append(f"Rows that repeat another row exactly: {repeated}.")
    if table.is_cut:
        found.append(f"Only the first {MAX_ROWS:,} rows were read.")
    for index, name in enumerate(table.columns):
        found += [f"`{name}`: {text}" for text in column_oddities(table.cells(index))]
    return found


def column_oddities(cells: Sequence[str]) -> list[str]:
    """Return anomalies of one column."""
    found = []
    empty = sum(not text for text in cells)
    if empty:
        found.append(f"{empty} of {len(cells)} cells are empty.")
    values = numbers(cells)
    wrong = [text for text in cells if text and number(text) is None]
    if values is not None and wrong:
        found.append(f"{len(wrong)} cells are not numbers, for example “{cell(wrong[0], 24)}”.")
    if values is not None and len(values) >= 8:  # noqa: PLR2004 - quartiles of fewer values say nothing
        low, _, high = statistics.quantiles(values, n=4)
        reach = 3 * (high - low)
        far = [v for v in values if reach and (v < low - reach or v > high + reach)]
        if far:
            extreme = max(far, key=abs)
            found.append(
                f"{len(far)} values lie far from the others, for example {shown(extreme)}."
            )
    return found


def histogram(values: Sequence[float]) -> list[tuple[str, float]]:
    """Return the number of values in each of several equal ranges."""
    low, high = min(values), max(values)
    width = (high - low) / BINS or 1.0
    counts = Counter(min(int((value - low) / width), BINS - 1) for value in values)
    used = BINS if high > low else 1
    return [(shown(low + place * width), float(counts[place])) for place in range(used)]


def chart(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """Draw horizontal bars as SVG."""
    largest = max((abs(amount) for _, amount in bars), default=0) or 1
    height = 50 + 26 * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {height}" font-family="sans-serif">',
        f'<rect width="640" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="28" font-size="16" fill="#1f2933">{escape(title)}</text>',
    ]
    for place, (label, amount) in enumerate(bars):
        top = 46 + 26 * place
        width = 360 * abs(amount) / largest
        colour = "#2f6f8f" if amount >= 0 else "#b4543c"
        parts += [
            f'<text x="170" y="{top + 14}" font-size="12" text-anchor="end" fill="#3e4c59">'
            f"{escape(label[:26])}</text>",
            f'<rect x="180" y="{top}" width="{width:.1f}" height="19" fill="{colour}"/>',
            f'<text x="{186 + width:.1f}" y="{top + 14}" font-size="12" fill="#1f2933">{shown(amount)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def charts(table: Table, grouped: Sequence[tuple[str, float]], by: str | None) -> dict[str, str]:
    """Return the charts by file name: the groups if there are any, otherwise the distribution of each column."""
    if by is not None:
        return {"chart-groups.svg": chart(f"By {by}", grouped[:MAX_BARS])}
    drawn: dict[str, str] = {}
    for index, name in enumerate(table.columns):
        cells = table.cells(index)
        values = numbers(cells)
        different = len({text for text in cells if text})
        if values is not None and different > 2:  # noqa: PLR2004 - two values need no chart
            drawn[f"chart-{index + 1}.svg"] = chart(f"{name}: number of rows", histogram(values))
        elif 1 < different <= MAX_BARS:
            top = [
                (text, float(count)) for text, count in Counter(filter(None, cells)).most_common()
            ]
            drawn[f"chart-{index + 1}.svg"] = chart(f"{name}: number of rows", top)
        if len(drawn) == MAX_CHARTS:
            break
    return drawn


def report(table: Table, title: str, grouped: Sequence[tuple[str, float]], heading: str) -> str:
    """Return the report as Markdown, without its charts."""
    lines = [f"# {title}", "", f"{len(table.rows):,} rows, {len(table.columns)} columns.", ""]
    if grouped:
        total = math.fsum(amount for _, amount in grouped)
        lines += [f"## {heading}", "", "| | amount | share |", "|---|---|---|"]
        lines += [
            f"| {cell(key)} | {shown(amount)} | {amount / total:.1%} |"
            if total
            else f"| {cell(key)} | 0 | |"
            for key, amount in grouped[:MAX_BARS]
        ]
        rest = grouped[MAX_BARS:]
        if rest:
            lines.append(f"| {len(rest)} others | {shown(math.fsum(a for _, a in rest))} | |")
        lines.append("")
    lines += ["## Columns", "", *column_lines(table), ""]
    odd = oddities(table)
    if odd:
        lines += ["## Worth a look", "", *(f"- {text}" for text in odd), ""]
    return "\n".join(lines)


def place_of(table: Table, name: str | None) -> int | None:
    """Return the position of a column. Raises SystemExit with the available names."""
    if name is None:
        return None
    for index, column in enumerate(table.columns):
        if column.lower() == name.strip().lower():
            return index
    raise SystemExit(f"There is no column {name!r}; available: {', '.join(table.columns)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the file, write the report and its charts, print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("report"))
    parser.add_argument("--by")
    parser.add_argument("--value")
    parser.add_argument("--delimiter")
    parser.add_argument("--title")
    asked = parser.parse_args(arguments)
    if not asked.file.is_file():
        raise SystemExit(f"There is no file {asked.file}")
    table = read(asked.file, asked.delimiter)
    if not table.rows:
        raise SystemExit("The table has no rows below its header.")
    by, value = place_of(table, asked.by), place_of(table, asked.value)
    grouped = groups(table, by, value) if by is not None else []
    what = asked.value or "rows"
    text = report(table, asked.title or asked.file.stem, grouped, f"{what} by {asked.by}")
    drawn = charts(table, grouped, asked.by)
    if drawn:
        text += "\n".join(["", "## Charts", "", *(f"![{name}]({name})" for name in drawn), ""])
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, picture in drawn.items():
        (asked.out / name).write_text(picture, "utf-8")
    (asked.out / "report.md").write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
