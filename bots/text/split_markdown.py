"""Splits Markdown into messages: between blocks, then inside blocks, without losing a word. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bots.text.block_rules import details_parts
from bots.text.measure import Fits, SizeEstimator, Wrap, chop_text, longest_fitting
from bots.text.paragraphs import cut_prose
from bots.text.parser import outline
from bus.characters import clean_outbound

_DEPTH = 6
"""Maximum depth of lists and quotes to split by their structure. Deeper ones are split as text."""

_HEADINGS = 3
"""Maximum number of consecutive headings that stay with the text below them."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARKER = re.compile(r" {0,3}(?:[-+*]|(\d{1,9})[.)])(?: {1,4}(?! )| |\t|\Z)")
_QUOTE = re.compile(r" {0,3}> ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """A top-level block's source lines.

    Attributes:
        kind: markdown-it's token type; "tail" = the rest of a block that was cut.
        items: The lines at which a list's items begin.
    """

    kind: str
    text: str
    items: tuple[int, ...] = ()


def split_markdown(
    markdown: str, fits: Fits, *, as_file: Callable[[str], bool] | None = None
) -> list[str]:
    r"""Cut Markdown into pieces that fit and render by themselves.

    Blocks stay whole if possible. Otherwise fences are closed and reopened, table headers are repeated, lists are split
    between items, and paragraphs at lines, sentences or words.

    Args:
        markdown: Any text. It is cleaned first.
        fits: Returns whether a piece fits into one message. It is called about ten times for each piece. `fits("x")`
            must be true.
        as_file: Returns whether to keep a fenced block that does not fit as one piece, because it is sent as a file
            (bots/text/code_file.py). It is called for blocks outside of lists and quotes.

    Returns:
        At least one piece. Only single characters and blocks for files may not fit.

    >>> split_markdown("a b\n\n```py\nx = 1\ny = 2\n```", lambda piece: len(piece) <= 16)
    ['a b', '```py\nx = 1\n```', '```py\ny = 2\n```']
    """
    text = clean_outbound(markdown)
    gauge = SizeEstimator(fits)
    if gauge(text):
        return [text]
    pieces: list[str] = []
    for part, is_file in _separate_files(text, gauge, as_file) if as_file else [(text, False)]:
        pieces += [part] if is_file else _cut_to_fit(part, gauge)
    return pieces or [""]


def _cut_to_fit(text: str, gauge: SizeEstimator) -> list[str]:
    if gauge(text):
        return [text] if text.strip() else []
    return [part for piece in _cut(text, gauge, depth=0) for part in _verify(piece, gauge)]


def _separate_files(
    text: str, gauge: SizeEstimator, as_file: Callable[[str], bool]
) -> list[tuple[str, bool]]:
    """Separate the fenced blocks that become files. Return the parts in order, and whether each is a file."""
    parts: list[tuple[str, bool]] = []
    before: list[str] = []
    for chunk in _chunks(text):
        if chunk.kind == "fence" and not gauge(chunk.text) and as_file(chunk.text):
            parts += [("\n".join(before).strip("\n"), False), (chunk.text.strip("\n"), True)]
            before = []
        else:
            before.append(chunk.text)
    return [*parts, ("\n".join(before).strip("\n"), False)]


def _chunks(text: str) -> list[_Chunk]:
    tops: list[tuple[str, int, list[int]]] = []
    for token in outline(text):
        start = token.map[0] if token.map else 0
        if token.level == 0 and token.nesting >= 0:
            tops.append((token.type, start, []))
        elif token.level == 1 and token.type == "list_item_open":
            tops[-1][2].append(start - tops[-1][1])
    lines = text.split("\n")
    ends = [start for _, start, _ in tops[1:]] + [len(lines)] * bool(tops)
    return [
        _Chunk(kind=kind, text="\n".join(lines[start:end]), items=tuple(items))
        for (kind, start, items), end in zip(tops, ends, strict=True)
    ]


def _cut(text: str, gauge: SizeEstimator, *, depth: int) -> list[str]:
    chunks = _chunks(text)
    ends = _end_offsets(chunk.text for chunk in chunks)
    pieces: list[str] = []
    at = base = 0
    while at < len(chunks):
        count = _count_fitting(chunks, ends, at, base, gauge)
        if count and not _is_head_of_cut(chunks, at, count, gauge):
            pieces.append(_join(chunks, at, count))
            at += count
            base = ends[at - 1]
        elif chunks[at].kind == "tail":
            pieces.append(chunks[at].text)
            base = ends[at]
            at += 1
        else:
            head, at = _join(chunks, at, count), at + count
            *whole, tail = _cut_below(head, chunks[at], gauge, depth) or [""]
            pieces += whole
            chunks[at] = _Chunk(kind="tail", text=tail + "\n")
            base = ends[at] - len(tail) - 1
    return [piece for piece in pieces if piece.strip()]


def _end_offsets(texts: Iterable[str]) -> list[int]:
    """Return the end offset of each text, with a line break after each."""
    return list(accumulate(len(text) + 1 for text in texts))


def _count_fitting(
    chunks: Sequence[_Chunk], ends: Sequence[int], at: int, base: int, gauge: SizeEstimator
) -> int:
    """Return how many chunks fit together. A heading stays with its text."""

    def ask(count: int) -> bool:
        return gauge(_join(chunks, at, _without_trailing_headings(chunks, at, count)))

    return _without_trailing_headings(chunks, at, gauge.most(ends, ask, at=at, base=base))


def _without_trailing_headings(chunks: Sequence[_Chunk], at: int, count: int) -> int:
    """Return the count without trailing headings."""
    if not 1 < count < len(chunks) - at:
        return count
    for shorter in range(count, max(count - _HEADINGS, 0), -1):
        if chunks[at + shorter - 1].kind != "heading_open":
            return shorter
    return count


def _is_head_of_cut(chunks: Sequence[_Chunk], at: int, count: int, gauge: SizeEstimator) -> bool:
    """Return whether chunks are only headings of a block that must be split. They go into its first piece."""
    if at + count == len(chunks):
        return False
    heads, block = chunks[at : at + count], chunks[at + count]
    return all(head.kind == "heading_open" for head in heads) and not gauge(block.text.strip("\n"))


def _cut_below(head: str, chunk: _Chunk, gauge: SizeEstimator, depth: int) -> list[str]:
    """Split one block that does not fit. The first piece begins with its headings, if there are any."""
    if not head:
        return _cut_block(chunk, gauge, depth)
    below = gauge.inside(lambda piece: f"{head}\n\n{piece}")
    first, *others = _cut_block(chunk, below, depth) or [""]
    return [f"{head}\n\n{first}", *others]


def _join(chunks: Sequence[_Chunk], at: int, count: int) -> str:
    return "\n".join(chunk.text for chunk in chunks[at : at + count]).strip("\n")


def _cut_block(chunk: _Chunk, gauge: SizeEstimator, depth: int) -> list[str]:  # noqa: PLR0911 - one return per kind
    """Split one block that does not fit."""
    text = chunk.text.strip("\n")
    match chunk.kind:
        case "fence":
            return _cut_fence(text, gauge)
        case "code_block":
            lines = [line.removeprefix("    ") for line in text.split("\n")]
            return _cut_rows(lines, lambda rows: "\n".join(f"    {row}" for row in rows), gauge)
        case "table_open":
            return _cut_table(text, gauge)
        case "bullet_list_open" | "ordered_list_open" if depth < _DEPTH:
            return _cut_list(_list_items(text, chunk.items), gauge, depth)
        case "details_open" if depth < _DEPTH:
            return _cut_details(text, gauge, depth)
        case "blockquote_open" if depth < _DEPTH:
            inner = "\n".join(_QUOTE.sub("", line, count=1) for line in text.split("\n"))
            pieces = _cut(inner, gauge.inside(_quote), depth=depth + 1)
            return [_quote(piece) for piece in pieces]
        case _:
            return cut_prose(text, gauge)


def _cut_details(text: str, gauge: SizeEstimator, depth: int) -> list[str]:
    """Split `<details>` into several, each with the same summary."""
    opening, inner = details_parts(text)

    def wrap(piece: str) -> str:
        return f"{opening}\n\n{piece}\n\n</details>"

    return [wrap(piece) for piece in _cut(inner, gauge.inside(wrap), depth=depth + 1)]


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _group(
    rows: list[str], wrap: Wrap, gauge: SizeEstimator, alone: Callable[[str], list[str]]
) -> list[str]:
    """Split between rows. `alone` splits a row that does not fit on its own."""
    pieces: list[str] = []
    ends = _end_offsets(rows)
    at = 0
    while at < len(rows):
        start = at

        def ask(count: int, start: int = start) -> bool:
            return gauge(wrap(rows[start : start + count]))

        count = gauge.most(ends, ask, at=at, base=ends[at - 1] if at else 0)
        pieces += [wrap(rows[at : at + count])] if count else alone(rows[at])
        at += count or 1
    return pieces


def _cut_rows(rows: list[str], wrap: Wrap, gauge: SizeEstimator) -> list[str]:
    """Split code between lines, and inside a line that is too long."""

    def alone(line: str) -> list[str]:
        pieces: list[str] = []
        while line:
            size = longest_fitting(line, gauge, lambda head: gauge(wrap([head])))
            if not size:
                return pieces + chop_text(line, gauge)
            pieces.append(wrap([line[:size]]))
            line = line[size:]
        return pieces

    return _group(rows, wrap, gauge, alone)


def _cut_fence(text: str, gauge: SizeEstimator) -> list[str]:
    opening, *body = text.split("\n")
    match = _FENCE.match(opening)
    mark = match[1] if match else "```"
    last = body[-1].strip() if body else ""
    if len(last) >= len(mark) and not last.strip(mark[0]):
        body.pop()
    return _cut_rows(body, lambda rows: "\n".join([opening, *rows, mark]), gauge)


def _cut_table(text: str, gauge: SizeEstimator) -> list[str]:
    """Split a table between rows and repeat its header. A row that is too long for a message becomes text."""
    header, rule, *rows = text.split("\n")
    if not rows or not gauge(f"{header}\n{rule}"):
        return cut_prose(text, gauge)
    return _group(
        rows,
        lambda some: "\n".join([header, rule, *some]),
        gauge,
        lambda row: cut_prose(row.strip(), gauge),
    )


def _cut_list(items: list[str], gauge: SizeEstimator, depth: int) -> list[str]:
    """Split a list between items, and an item that is too long between its blocks."""
    return _group(
        items,
        lambda some: "\n".join(some).strip("\n"),
        gauge,
        lambda item: _cut_item(item, gauge, depth),
    )


def _list_items(text: str, starts: Sequence[int]) -> list[str]:
    """Return the source of a list's items, each with its own number, because any of them can start a message."""
    lines = text.split("\n")
    first = _MARKER.match(lines[0])
    number = int(first[1]) if first and first[1] else None
    items = []
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(lines)], strict=True)):
        item = lines[start:end]
        items.append("\n".join(item if number is None else _renumber(item, number + index)))
    return items


def _renumber(item: list[str], number: int) -> list[str]:
    """Set the number of an item, and indent its further lines accordingly."""
    match = _MARKER.match(item[0])
    if match is None or match[1] is None:
        return item
    begin, end = match.span(1)
    wider = len(str(number)) - (end - begin)
    rest = (
        [" " * wider + line if line.strip() else line for line in item[1:]]
        if wider > 0
        else item[1:]
    )
    return [f"{item[0][:begin]}{number}{item[0][end:]}", *rest]


def _cut_item(item: str, gauge: SizeEstimator, depth: int) -> list[str]:
    """Split one item. The first piece keeps the marker, and the others are not indented."""
    match = _MARKER.match(item)
    if match is None:
        return cut_prose(item, gauge)
    marker, margin = match[0], " " * match.end()
    first, *rest = item[match.end() :].split("\n")
    inner = "\n".join([first, *(_dedent(line, match.end()) for line in rest)])

    def marked(text: str) -> str:
        return marker + text.replace("\n", f"\n{margin}")

    head, *tails = _cut(inner, gauge.inside(marked), depth=depth + 1) or [""]
    if not gauge(marked(head)):
        return chop_text(item, gauge)
    return [marked(head), *(piece for tail in tails for piece in _verify(tail, gauge))]


def _verify(text: str, gauge: SizeEstimator) -> list[str]:
    return [text] if gauge(text) else chop_text(text, gauge)


def _dedent(line: str, by: int) -> str:
    blank = len(line) - len(line.lstrip(" "))
    return line[min(blank, by) :]
