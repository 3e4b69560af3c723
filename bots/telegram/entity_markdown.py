"""Converts text with entities to Markdown, and finds mentions and commands in it. Pure.

Offsets of Telegram's entities count UTF-16 code units. A name is a mention only if it has an entity. Names inside code
and similar names have none.
"""

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from bots.telegram.identity import TelegramIdentity
from bots.telegram.payload import Json, as_int, as_line, as_object, as_str, as_time
from bus.characters import clean

STYLES = {"bold": "**", "italic": "*", "strikethrough": "~~", "spoiler": "||"}
"""Markdown marks of styles, by the styles' names in entities and rich messages. Underlined text stays plain."""

_LITERAL = ("pre", "code")
"""Entities in which mentions, commands and formatting have no effect."""

_QUOTES = ("blockquote", "expandable_blockquote")
_LABELS = ("text_link", "date_time")
_FORMATS = frozenset({*_QUOTES, *_LABELS, *STYLES})
_PEOPLE = ("mention", "text_mention")
_OURS = "ours"
"""A mention of the bot, or a command that names it."""

_NESTING = (*_QUOTES, *_LITERAL, *_LABELS, *STYLES, _OURS)
"""Order of nesting. If two spans have the same extent, the one listed first is the outer one."""

_MAX_ENTITIES = 200
"""Maximum number of entities to read. Telegram uses 100."""

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

_BLANK_LINES = re.compile(r"(\n\s*\n)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedText:
    """A text without mentions of the bot.

    Attributes:
        text: Markdown, without mentions of the bot and `@bot` suffixes of its commands.
        plain: The same without formatting, for commands.
        mentioned: Whether it mentions the bot.
        mentions_people: Whether it mentions anybody else.
        command: The command at the beginning, lower case; "" = none.
        for_other: Whether that command is for another bot.
    """

    text: str
    plain: str = ""
    mentioned: bool = False
    mentions_people: bool = False
    command: str = ""
    for_other: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The range of an entity, in UTF-16 code units."""

    start: int
    end: int
    kind: str
    entity: Json

    @property
    def order(self) -> tuple[int, int, int]:
        return self.start, -self.end, _NESTING.index(self.kind)


@dataclass(frozen=True, slots=True)
class _Node:
    """A span, and the spans inside it."""

    span: _Span
    children: list["_Node"] = field(default_factory=list)


def parse_text(text: str, entities: Sequence[object], identity: TelegramIdentity) -> ParsedText:
    """Parse a text or caption. The person's own characters are neither escaped nor changed.

    >>> me = TelegramIdentity(user_id=1, username="Bob")
    >>> parsed = parse_text("/help@bob now", [{"type": "bot_command", "offset": 0, "length": 9}], me)
    >>> parsed.text, parsed.mentioned, parsed.command
    ('/help now', True, 'help')
    >>> parse_text("not Monday", [{"type": "strikethrough", "offset": 4, "length": 6}], me).text
    'not ~~Monday~~'
    """
    units = _units(text)
    spans = list(_readable_spans(units, entities))
    literal = _disjoint(span for span in spans if span.kind in _LITERAL)
    live = [span for span in spans if not any(_overlap(span, one) for one in literal)]
    command = _leading_command(units, live, identity)
    name, _, owner = (
        _shown(units, command).removeprefix("/").partition("@") if command else [""] * 3
    )
    ours = [
        replace(span, kind=_OURS)
        for span in live
        if _names_bot(span, _shown(units, span), identity)
    ]
    formats = [span for span in spans if span.kind in _FORMATS]
    begin = command.end if command else 0
    marked = [*literal, *_cut(_after(formats, begin), literal), *ours]
    links = [span for span in marked if span.kind in (*_LABELS, _OURS)]
    return ParsedText(
        text=_finish(units, marked),
        plain=_finish(units, links),
        mentioned=bool(ours),
        mentions_people=any(
            span.kind in _PEOPLE and not _names_bot(span, _shown(units, span), identity)
            for span in live
        ),
        command=name.lower(),
        for_other=bool(owner) and owner.casefold() != identity.username.casefold(),
    )


def styled(text: str, marker: str) -> str:
    """Put a marker around each paragraph, because emphasis cannot span blank lines or border on blanks.

    >>> styled("a ", "**"), styled(" ", "**")
    ('**a** ', ' ')
    """
    parts = _BLANK_LINES.split(text)
    return "".join(_mark(part, marker) if part.strip() else part for part in parts)


def code(text: str) -> str:
    """Return text as code within a line."""
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def fenced(text: str, language: str) -> str:
    """Return text as a block of code."""
    fence = "`" * max(_longest_run(text) + 1, 3)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{''.join(language.replace('`', '').split())}\n{text}{end}{fence}"


def quoted(text: str) -> str:
    """Return text as a block quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def link(label: str, url: str) -> str:
    """Return a link, or only the label if the label is the address.

    >>> link("docs", "https://a.example/docs"), link("a.example", "http://a.example/")
    ('[docs](https://a.example/docs)', 'a.example')
    """
    address = "".join(url.split())
    plain = address.rstrip("/")
    if not plain or label.strip().rstrip("/") in (plain, plain.partition("://")[2]):
        return label
    if set(address) & set("()<>"):
        address = f"<{address.replace('<', '%3C').replace('>', '%3E')}>"
    core = label.strip()
    before, _, after = label.partition(core)
    return f"{before}[{core}]({address}){after}" if core else label


def dated(label: str, unix_time: object) -> str:
    """Return a time's label followed by the time in UTC, because apps show it in each reader's time zone."""
    moment = as_time(unix_time)
    if moment is None:
        return label
    return f"{label} ({datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC)"


def _units(text: str) -> str:
    """Return a text with one character for each UTF-16 code unit. `clean` reverses this."""
    return text if text.isascii() else _ASTRAL.sub(_surrogates, text)


def _surrogates(match: re.Match[str]) -> str:
    rest = ord(match.group()) - 0x10000
    return chr(0xD800 + (rest >> 10)) + chr(0xDC00 + (rest & 0x3FF))


def _readable_spans(units: str, entities: Sequence[object]) -> Iterator[_Span]:
    """Yield the entities that lie within the text and do not split a character."""
    for entity in map(as_object, entities[:_MAX_ENTITIES]):
        start, length = as_int(entity.get("offset")), as_int(entity.get("length"))
        if start is None or length is None or start < 0 or length <= 0:
            continue
        end = start + length
        if end <= len(units) and not (_splits(units, start) or _splits(units, end)):
            yield _Span(start=start, end=end, kind=as_str(entity.get("type")), entity=entity)


def _splits(units: str, at: int) -> bool:
    return (
        0 < at < len(units)
        and "\ud800" <= units[at - 1] <= "\udbff"
        and "\udc00" <= units[at] <= "\udfff"
    )


def _shown(units: str, span: _Span) -> str:
    return units[span.start : span.end]


def _names_bot(span: _Span, shown: str, identity: TelegramIdentity) -> bool:
    if not identity.user_id:
        return False
    match span.kind:
        case "mention":
            return shown.casefold() == f"@{identity.username}".casefold()
        case "text_mention":
            return as_object(span.entity.get("user")).get("id") == identity.user_id
        case "bot_command":
            return shown.partition("@")[2].casefold() == identity.username.casefold()
        case _:
            return False


def _leading_command(
    units: str, spans: Sequence[_Span], identity: TelegramIdentity
) -> _Span | None:
    """Return the command at the beginning of a text. Mentions of the bot may precede it."""
    cursor = 0
    for span in sorted(spans, key=lambda span: span.start):
        if span.start < cursor:
            continue
        if units[cursor : span.start].strip():
            return None
        if span.kind == "bot_command":
            return span
        if _names_bot(span, _shown(units, span), identity):
            cursor = span.end
    return None


def _after(spans: Sequence[_Span], begin: int) -> list[_Span]:
    """Return the spans after a command at the beginning, because the command is not formatted."""
    late = (replace(span, start=max(span.start, begin)) for span in spans)
    return [span for span in late if span.start < span.end]


def _overlap(one: _Span, other: _Span) -> bool:
    return one.start < other.end and other.start < one.end


def _disjoint(spans: Iterator[_Span]) -> list[_Span]:
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.order):
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


def _cut(spans: Sequence[_Span], literal: Sequence[_Span]) -> list[_Span]:
    """Cut formatting at the edges of code and quotations, and drop the parts inside code.

    Only a quotation may contain code, and only as a whole (a rule of Telegram).
    """
    quotes = _disjoint(span for span in spans if span.kind in _QUOTES)
    pieces = [
        piece
        for quote in quotes
        for piece in _pieces(quote, [one for one in literal if not _contains(quote, one)])
    ]
    blocks = [*literal, *quotes]
    for span in _merged([span for span in spans if span.kind not in _QUOTES]):
        pieces += _pieces(span, blocks)
    return [piece for piece in pieces if not any(_contains(one, piece) for one in literal)]


def _contains(outer: _Span, inner: _Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _pieces(span: _Span, blocks: Sequence[_Span]) -> list[_Span]:
    edges = {edge for block in blocks for edge in (block.start, block.end)}
    points = [span.start, *sorted(at for at in edges if span.start < at < span.end), span.end]
    return [replace(span, start=start, end=end) for start, end in pairwise(points)]


def _merged(spans: Sequence[_Span]) -> list[_Span]:
    """Join adjacent spans with the same style, because apps split styles at mentions and emoji."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.kind, span.start)):
        last = merged[-1] if merged else span
        if span.kind in STYLES and merged and last.kind == span.kind and span.start <= last.end:
            merged[-1] = replace(last, end=max(last.end, span.end))
        else:
            merged.append(span)
    return merged


def _finish(units: str, spans: Sequence[_Span]) -> str:
    return clean(_render(units, 0, len(units), _nest(spans))).strip()


def _nest(spans: Sequence[_Span]) -> list[_Node]:
    """Return spans as a tree. If a span extends beyond the end of an enclosing one, it is cut there."""
    waiting = [(span.order, number, span) for number, span in enumerate(spans)]
    heapq.heapify(waiting)
    top: list[_Node] = []
    open_nodes: list[_Node] = []
    number = len(waiting)
    while waiting:
        _, _, span = heapq.heappop(waiting)
        while open_nodes and open_nodes[-1].span.end <= span.start:
            open_nodes.pop()
        if open_nodes and span.end > (end := open_nodes[-1].span.end):
            rest = replace(span, start=end)
            number += 1
            heapq.heappush(waiting, (rest.order, number, rest))
            span = replace(span, end=end)
        node = _Node(span)
        (open_nodes[-1].children if open_nodes else top).append(node)
        open_nodes.append(node)
    return top


def _render(units: str, start: int, end: int, nodes: Sequence[_Node]) -> str:
    text, cursor = "", start
    for node in nodes:
        span = node.span
        text += units[cursor : span.start] if cursor < span.start else ""
        cursor = max(cursor, span.end)
        shown = _markdown(units, node)
        if not shown:
            # Remove the space after a removed mention too.
            is_lonely = not text or text[-1].isspace()
            cursor += 1 if is_lonely and units[cursor : min(cursor + 1, end)] == " " else 0
        elif span.kind == "pre" or span.kind in _QUOTES:
            text += "" if not text or text.endswith("\n") else "\n"
            text += shown + _gap(units[cursor:end], is_quote=span.kind in _QUOTES)
        else:
            text += shown
    return text + units[cursor:end]


def _gap(following: str, *, is_quote: bool) -> str:
    """Return the line ends to add after a block. Without them, a line after a quotation would become part of it."""
    if not following:
        return ""
    there = len(following) - len(following.lstrip("\n"))
    return "\n" * max((2 if is_quote else 1) - there, 0)


def _markdown(units: str, node: _Node) -> str:
    span, entity = node.span, node.span.entity
    if span.kind in _LITERAL:
        shown = _shown(units, span)
        return (
            code(shown) if span.kind == "code" else fenced(shown, as_line(entity.get("language")))
        )
    if span.kind == _OURS:
        is_command = entity.get("type") == "bot_command"
        return _shown(units, span).partition("@")[0] if is_command else ""
    inner = _render(units, span.start, span.end, node.children)
    match span.kind:
        case "text_link":
            return link(inner, as_str(entity.get("url")))
        case "date_time":
            return dated(inner, entity.get("unix_time"))
        case _:
            return styled(inner, STYLES[span.kind]) if span.kind in STYLES else quoted(inner)


def _mark(text: str, marker: str) -> str:
    core = text.strip()
    before, _, after = text.partition(core)
    return f"{before}{marker}{core}{marker}{after}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)
