"""The report of a soak test: an HTML page with a line for each value and all samples, and a Markdown table."""

import html
from collections.abc import Sequence
from pathlib import Path

from tests.lab.soak.samples import Sample, after_warm_up, growth_of, per_thousand_turns

WIDTH, HEIGHT = 640, 90


def summary_rows(samples: Sequence[Sample]) -> list[tuple[str, str, str, str, str]]:
    """Return the name, first and last sample, growth per hour and growth per 1,000 turns of each value."""
    counted = after_warm_up(samples)
    rows = []
    for name in samples[0].values:
        growth = growth_of(counted, name)
        turns = per_thousand_turns(counted, growth)
        rows.append((
            name,
            f"{counted[0].values[name]:.1f}",
            f"{counted[-1].values[name]:.1f}",
            f"{growth.slope:+.2f} ± {growth.error:.2f}",
            f"{turns.slope:+.3f} ± {turns.error:.3f}",
        ))  # fmt: skip
    return rows


def markdown_table(samples: Sequence[Sample]) -> str:
    """Return the summary as a table."""
    head = "| | after warm-up | at the end | an hour | per 1,000 turns |\n|---|---|---|---|---|\n"
    return head + "\n".join(f"| {' | '.join(row)} |" for row in summary_rows(samples)) + "\n"


def write_page(samples: Sequence[Sample], found: Sequence[str], file: Path) -> None:
    """Write the page."""
    names = list(samples[0].values)
    verdict = "; ".join(found) or "No value grows that must not."
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("minute", "turns", *names))
    lines = [
        f"<tr><td>{sample.at_s / 60:.1f}</td><td>{sample.turns}</td>"
        + "".join(f"<td>{sample.values[name]:.1f}</td>" for name in names)
        + "</tr>"
        for sample in samples
    ]
    summary = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in summary_rows(samples)
    )
    charts = "".join(f"<h2>{html.escape(name)}</h2>{_chart(samples, name)}" for name in names)
    file.write_text(
        "<!doctype html><meta charset='utf-8'><title>make soak</title>"
        "<style>body{font:15px/1.5 system-ui;margin:2rem}td,th{border:1px solid #ccc;padding:0 .5rem;"
        "text-align:right}table{border-collapse:collapse}</style>"
        f"<h1>make soak</h1><p>{html.escape(verdict)}</p>"
        "<table><tr><th>value</th><th>after warm-up</th><th>at the end</th><th>an hour</th>"
        f"<th>per 1,000 turns</th></tr>{summary}</table>{charts}"
        f"<h2>Samples</h2><table><tr>{head}</tr>{''.join(lines)}</table>",
        "utf-8",
    )


def _chart(samples: Sequence[Sample], name: str) -> str:
    values = [sample.values[name] for sample in samples]
    low, high = min(values), max(values)
    end, range_ = samples[-1].at_s or 1.0, high - low or 1.0
    points = " ".join(
        f"{sample.at_s / end * WIDTH:.1f},{HEIGHT - (sample.values[name] - low) / range_ * HEIGHT:.1f}"
        for sample in samples
    )
    return (
        f"<p>{low:.1f} to {high:.1f}</p><svg width='{WIDTH}' height='{HEIGHT}'>"
        f"<polyline points='{points}' fill='none' stroke='#136c2e'/></svg>"
    )
