"""The architecture diagram, drawn from the layers that import-linter enforces (pyproject.toml)."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.pictures import svg

ROOT = Path(__file__).parents[3]
_WIDTH, _MARGIN, _GAP = 1080.0, 24.0, 34.0
_ROW, _COLUMN = 24.0, (_WIDTH - 2 * _MARGIN - _GAP) / 2
_CONTENTS = {
    "gateway": "command line, HTTP, LangGraph-compatible API, composition",
    "bots": "adapters of the platforms",
    "bus": "access, inbox, conversations, delivery",
    "agent": "the LangGraph agent: models, tools, sandbox, memory",
    "store": "SQLite or PostgreSQL: inbox, outbox, threads, runs",
}
_ARROWS = (
    ("gateway", "bots"),
    ("gateway", "agent"),
    ("bots", "bus"),
    ("bus", "store"),
    ("agent", "store"),
)
_COLORS = {
    "gateway": "#ede9fe",
    "bots": "#e0f2fe",
    "bus": "#dcfce7",
    "agent": "#ffedd5",
    "store": "#f1f5f9",
}


def architecture_diagram() -> str:
    """Return the diagram as SVG: each package is above the packages that it imports, with its parts by layer."""
    left, right = (_MARGIN, _COLUMN), (_MARGIN + _COLUMN + _GAP, _COLUMN)
    parts = {name: _parts_of(name) for name in _CONTENTS}
    heights = {name: 58 + _ROW * (len(rows) - 1) for name, rows in parts.items()}
    tops = {"gateway": _MARGIN}
    tops["bots"] = tops["agent"] = tops["gateway"] + heights["gateway"] + _GAP
    tops["bus"] = tops["bots"] + heights["bots"] + _GAP
    heights["agent"] = max(heights["agent"], tops["bus"] + heights["bus"] - tops["agent"])
    heights["bus"] = tops["agent"] + heights["agent"] - tops["bus"]
    tops["store"] = tops["bus"] + heights["bus"] + _GAP
    whole = (_MARGIN, _WIDTH - 2 * _MARGIN)
    columns = {"gateway": whole, "bots": left, "bus": left, "agent": right, "store": whole}
    drawn: list[str] = []
    for name, (x, width) in columns.items():
        drawn += _package(name, (x, tops[name]), (width, heights[name]), parts[name])
    for upper, lower in _ARROWS:
        x, width = columns[lower] if columns[lower] != whole else columns[upper]
        middle = x + width / 2
        bottom = tops[upper] + heights[upper]
        drawn.append(svg.arrow((middle, bottom), (middle, tops[lower] - 2)))
    y = tops["store"] + heights["store"] + 24
    note = "Imports go down only. The bus and the agent talk over the LangGraph API of the gateway."
    drawn.append(svg.text((_WIDTH / 2, y), note, size=12, color=svg.MUTED))
    return svg.picture(int(_WIDTH), int(y + 16), "The packages of Parley", *drawn)


def _package(name: str, corner: svg.Point, size: svg.Point, rows: list[list[str]]) -> Iterator[str]:
    x, y = corner
    yield svg.box(corner, size, fill=_COLORS[name])
    yield svg.text((x + 14, y + 23), f"{name}/", size=15, anchor="start", weight=600)
    yield svg.text((x + 102, y + 23), _CONTENTS[name], size=12, anchor="start", color=svg.MUTED)
    for number, row in enumerate(rows):
        yield svg.text((x + 14, y + 48 + number * _ROW), " · ".join(row), size=12, anchor="start")


def _parts_of(package: str) -> list[list[str]]:
    """Return a package's folders in rows, from the top down if a contract orders them."""
    folder = ROOT / package
    found = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
    layers = [
        name
        for contract in _contracts()
        if contract.get("containers") == [package]
        for layer in contract["layers"]
        for name in _names(layer)
    ]
    found.sort(key=lambda name: layers.index(name) if layers else 0)
    per_row = 11 if package == "gateway" else 6
    return [found[start : start + per_row] for start in range(0, len(found), per_row)]


def _names(layer: str) -> list[str]:
    return [name.strip() for name in layer.replace("|", ":").split(":")]


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return contracts
