"""Finds the headings of a text. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

MAX_HEADINGS = 50
MAX_SEARCHED_CHARS = 2_000_000  # maximum headings of a text
MAX_TITLE_CHARS = 120

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(?P<title>.*?)(?:[ \t]+#+)?[ \t]*")
_BOLD = re.compile(r"\s*(?:\*\*(?P<stars>[^*]+)\*\*|__(?P<lines>[^_]+)__)\s*")
_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<info>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineHeading:
    """A heading and its line number, from 1."""

    line: int
    title: str


def outline_lines(text: str) -> list[str]:
    r"""Return the headings of a Markdown text with their line numbers, at most `MAX_HEADINGS`.

    Headings are lines that start with `#`, and lines that are entirely bold, outside fenced code.

    >>> outline_lines("# A\n```\n# no\n```\n**B**\n")
    ['L1: A', 'L5: B']
    """
    headings = list(islice(_headings(text[:MAX_SEARCHED_CHARS].split("\n")), MAX_HEADINGS + 1))
    lines = [f"L{heading.line}: {heading.title}" for heading in headings[:MAX_HEADINGS]]
    more = len(headings) > MAX_HEADINGS
    return [*lines, "... there are more; find them with grep '^#'"] if more else lines


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
