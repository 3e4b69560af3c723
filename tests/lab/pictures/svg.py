"""SVG: escaped text, boxes, arrows, and the frame that all pictures share."""

from collections.abc import Sequence
from html import escape
from math import hypot

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
INK, MUTED, LINE = "#1f2937", "#6b7280", "#94a3b8"

_ARROWHEAD = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{MUTED}"/></marker></defs>'
)

Point = tuple[float, float]


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """Return a picture on a white panel, readable on light and dark pages. Sizes are in pixels."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="{FONT}" font-size="13" fill="{INK}" role="img">',
            f"<title>{escape(title)}</title>",
            _ARROWHEAD,
            f'<rect width="{width}" height="{height}" rx="10" fill="#fff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def text(
    at: Point,
    content: str,
    *,
    size: int = 13,
    color: str = INK,
    anchor: str = "middle",
    weight: int = 400,
    halo: bool = False,
) -> str:
    """Return one line of text with its baseline at a point. `halo` hides lines behind it."""
    style = ' paint-order="stroke" stroke="#fff" stroke-width="4"' if halo else ""
    return (
        f'<text x="{at[0]:g}" y="{at[1]:g}" font-size="{size}" fill="{color}" font-weight="{weight}" '
        f'text-anchor="{anchor}"{style}>{escape(content)}</text>'
    )


def lines(at: Point, content: Sequence[str], *, size: int = 11, color: str = MUTED) -> str:
    """Return lines of text, centered on a point."""
    top = at[1] - (len(content) - 1) * (size + 2) / 2 + size / 3
    return "\n".join(
        text((at[0], top + number * (size + 2)), line, size=size, color=color, halo=True)
        for number, line in enumerate(content)
    )


def box(corner: Point, size: Point, *, fill: str = "#f8fafc", stroke: str = LINE) -> str:
    """Return a rectangle with round corners."""
    return (
        f'<rect x="{corner[0]:g}" y="{corner[1]:g}" width="{size[0]:g}" height="{size[1]:g}" rx="8" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def arrow(start: Point, end: Point, *, bend: float = 0, dashed: bool = False) -> str:
    """Return an arrow. `bend` is the distance of its middle to the left of the straight line."""
    control = beside(start, end, bend * 2)
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<path d="M{start[0]:g} {start[1]:g}Q{control[0]:.1f} {control[1]:.1f} {end[0]:g} {end[1]:g}" '
        f'fill="none" stroke="{MUTED}"{dash} marker-end="url(#arrow)"/>'
    )


def beside(start: Point, end: Point, distance: float) -> Point:
    """Return the point at this distance to the left of the middle of a line."""
    x, y = end[0] - start[0], end[1] - start[1]
    length = hypot(x, y) or 1
    return (
        (start[0] + end[0]) / 2 + y / length * distance,
        (start[1] + end[1]) / 2 - x / length * distance,
    )
