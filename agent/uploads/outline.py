"""Extracts the outline of a text: headings with line numbers, or its first lines. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAX_HEADINGS = 50
MAX_TITLE_CHARS = 120
PREVIEW_LINES = 5
MAX_PREVIEW_CHARS = 200  # of one line

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?P<title>.*?)(?:[ \t]+#+)?[ \t]*")
_BOLD = re.compile(r"\s*(?:\*\*(?P<stars>[^*]+)\*\*|__(?P<lines>[^_]+)__)\s*")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineHeading:
    """A heading and its line number, from 1."""

    line: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The headings of a text, or its first lines if it has none; `truncated` if there are more headings."""

    headings: tuple[OutlineHeading, ...] = ()
    truncated: bool = False
    preview: tuple[str, ...] = ()


def extract_outline(text: str) -> Outline:
    r"""Return the outline of a Markdown text.

    Headings are lines with `#`, and lines that are entirely bold, outside fenced code.

    >>> [(h.line, h.title) for h in extract_outline("# A\n```\n# no\n```\n**B**\n").headings]
    [(1, 'A'), (5, 'B')]
    >>> extract_outline("\nfirst\n\nsecond").preview
    ('first', 'second')
    """
    lines = text.split("\n")
    headings: list[OutlineHeading] = []
    for heading in _headings(lines):
        if len(headings) == MAX_HEADINGS:
            return Outline(headings=tuple(headings), truncated=True)
        headings.append(heading)
    if headings:
        return Outline(headings=tuple(headings))
    return Outline(preview=tuple(_preview(lines)))


def _headings(lines: Iterable[str]) -> Iterator[OutlineHeading]:
    fence = ""
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r")
        mark = _FENCE.fullmatch(line)
        if fence:
            if mark and mark["mark"].startswith(fence) and not mark["info"].strip():
                fence = ""
            continue
        if mark and "`" not in mark["info"]:
            fence = mark["mark"]
            continue
        title = _title(line)
        if title:
            yield OutlineHeading(line=number, title=title[:MAX_TITLE_CHARS])


def _title(line: str) -> str:
    heading = _HEADING.fullmatch(line)
    if heading:
        return heading["title"].strip().strip("*").strip()
    bold = _BOLD.fullmatch(line)
    return (bold["stars"] or bold["lines"]).strip() if bold else ""


def _preview(lines: Iterable[str]) -> Iterator[str]:
    left = PREVIEW_LINES
    for line in lines:
        if left and line.strip():
            left -= 1
            yield line.strip()[:MAX_PREVIEW_CHARS]
