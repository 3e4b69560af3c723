"""The history of figures with a bar: a table in the docs with a column for each measured commit."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.lab.benchmarks.figures import Figure, value, verdict

TABLE = Path(__file__).parents[3] / "docs" / "explanation" / "benchmark-history.md"
_HEAD = """# History of the figures

`make bench RECORD=1` adds a column: the figures that have a bar, at that commit. Ratios compare rounds of one run; \
absolute figures depend on the machine and on the hour. Figures in bold miss their bar.

"""


def record(figures: Iterable[Figure], file: Path = TABLE) -> None:
    """Add or replace the column of the commit that is checked out."""
    rows = _read(file)
    commit = _commit()
    for figure in figures:
        if figure.bar:
            missed = "**" if verdict(figure) == "MISSED" else ""
            name = re.sub(r" \(-?[\d.]+ to -?[\d.]+\)|, best of \d+", "", figure.what)
            cells = rows.setdefault(name, {})
            cells["bar"] = figure.bar
            cells[commit] = f"{missed}{value(figure)}{missed}"
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    columns.sort(key=lambda column: (column != "bar", column == commit))
    lines = [_line(["figure", *columns]), _line(["---"] * (len(columns) + 1))]
    lines += [_line([name, *(cells.get(c, "") for c in columns)]) for name, cells in rows.items()]
    file.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _read(file: Path) -> dict[str, dict[str, str]]:
    """Return the table's cells by figure and column."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    table = [_cells(line) for line in text.splitlines() if line.startswith("|")]
    if not table:
        return {}
    return {
        name: {column: cell for column, cell in zip(table[0][1:], cells, strict=True) if cell}
        for name, *cells in table[2:]
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()
