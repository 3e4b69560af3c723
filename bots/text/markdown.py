"""Parses Markdown, finished or unfinished, to the typed tree. Pure, linear in the length of the text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from markdown_it.token import Token

from bots.text import tree
from bots.text.delimiters import finish_inline
from bots.text.links import escape_url, is_deceptive
from bots.text.parser import block_tokens, inline_tokens
from bots.text.tree import plain
from bus.characters import clean_outbound

_DEPTH = 8
"""Maximum nesting of inline formatting. Deeper text loses its formatting."""

_BREAK = re.compile(r" ?<br ?/?>", re.IGNORECASE)

_WRAPPERS: dict[str, type[tree.Style]] = {
    "strong_open": tree.Strong,
    "em_open": tree.Emphasis,
    "s_open": tree.Strike,
    "spoiler_open": tree.Spoiler,
}
_BOX = re.compile(r"\[([ xX])\] +")


def parse(markdown: str) -> tuple[tree.Block, ...]:
    """Parse Markdown: CommonMark without HTML and references, with tables, strikethrough, tasks, formulas and details.

    >>> parse("# Hi")[0].level
    1
    """
    return _TreeBuilder(markdown).read()


class _TreeBuilder:
    """Builds the blocks of one text."""

    def __init__(self, markdown: str) -> None:
        self._markdown = markdown

    def read(self) -> tuple[tree.Block, ...]:
        return self._blocks(iter(block_tokens(self._markdown)), end="")

    def _blocks(self, stream: Iterator[Token], end: str) -> tuple[tree.Block, ...]:
        blocks = []
        for token in stream:
            if token.type == end:
                break
            blocks.append(self._block(token, stream))
        return tuple(blocks)

    def _block(self, token: Token, stream: Iterator[Token]) -> tree.Block:  # noqa: PLR0911 - one return per kind
        match token.type:
            case "heading_open":
                return tree.HeadingBlock(level=int(token.tag[1:]), children=self._leaf(stream))
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, stream)
            case "blockquote_open":
                return tree.Quote(children=self._blocks(stream, "blockquote_close"))
            case "table_open":
                return self._table(stream)
            case "fence" | "code_block" | "formula_block":
                return _code(token)
            case "details_open":
                next(stream)
                summary = self._leaf(stream)
                return tree.Details(summary=summary, children=self._blocks(stream, "details_close"))
            case "hr":
                return tree.Rule()
            case _:
                return tree.Paragraph(children=self._leaf(stream))

    def _leaf(self, stream: Iterator[Token]) -> tuple[tree.Inline, ...]:
        """Read a block's one `inline` token and its closing token."""
        content = next(stream).content
        next(stream)
        return _inlines(inline_tokens(content))

    def _list(self, opening: Token, stream: Iterator[Token]) -> tree.ListBlock:
        items, checks, tight = [], [], True
        for token in stream:
            if token.type != "list_item_open":
                break
            inner, item_tight = self._item(stream)
            item, check = _without_box(inner)
            items.append(item)
            checks.append(check)
            tight = tight and item_tight
        start = int(opening.attrGet("start") or _first(opening)) if opening.tag == "ol" else None
        return tree.ListBlock(start=start, tight=tight, items=tuple(items), checks=tuple(checks))

    def _item(self, stream: Iterator[Token]) -> tuple[tuple[tree.Block, ...], bool]:
        """Read one item. It is tight if markdown-it hides its paragraphs."""
        blocks, tight = [], True
        for token in stream:
            if token.type == "list_item_close":
                break
            if token.type == "paragraph_open":
                tight = tight and token.hidden
            blocks.append(self._block(token, stream))
        return tuple(blocks), tight

    def _table(self, stream: Iterator[Token]) -> tree.Table:
        rows: list[list[tuple[tree.Inline, ...]]] = []
        alignments: list[tree.Align] = []
        for token in stream:
            match token.type:
                case "tr_open":
                    rows.append([])
                case "th_open" | "td_open":
                    if token.type == "th_open":
                        alignments.append(_align(token))
                    rows[-1].append(_with_breaks(self._leaf(stream)))
                case "table_close":
                    break
        header, *body = (tuple(row) for row in rows)
        return tree.Table(alignments=tuple(alignments), header=header, rows=tuple(body))


def _code(token: Token) -> tree.CodeBlock:
    if token.type == "formula_block":
        formula = expression(token.content)
        return tree.CodeBlock(text=token.content, language="latex", formula=formula)
    language = (token.info.split() or [""])[0]
    return tree.CodeBlock(text=token.content.removesuffix("\n"), language=language)


def _first(opening: Token) -> int:
    return 0 if opening.attrGet("start") == 0 else 1


def _without_box(item: tuple[tree.Block, ...]) -> tuple[tuple[tree.Block, ...], bool | None]:
    """Return an item of a task list without its box, and whether the box is checked; None if it has no box."""
    match item:
        case (tree.Paragraph(children=(tree.Text(text=text, source=source), *rest)), *others) if (
            text == source and (box := _BOX.match(text)) and (rest or box.end() < len(text))
        ):
            words = [_text(text[box.end() :]), *rest] if box.end() < len(text) else rest
            return (tree.Paragraph(children=tuple(words)), *others), box[1] != " "
        case _:
            return item, None


def _with_breaks(cell: Iterable[tree.Inline]) -> tuple[tree.Inline, ...]:
    """Replace each `<br>` in a cell by a line break. Models write it, because cells cannot have other line breaks."""
    inlines: list[tree.Inline] = []
    for inline in cell:
        if isinstance(inline, tree.Style):
            inlines.append(replace(inline, children=_with_breaks(inline.children)))
        elif isinstance(inline, tree.Text) and inline.text == inline.source:
            for index, line in enumerate(_BREAK.split(inline.text)):
                inlines += [tree.Break(hard=True), _text(line.lstrip())] if index else [_text(line)]
        else:
            inlines.append(inline)
    return tuple(one for one in inlines if one != _text(""))


def _align(token: Token) -> tree.Align:
    match str(token.attrGet("style") or "").removeprefix("text-align:"):
        case "left":
            return "left"
        case "center":
            return "center"
        case "right":
            return "right"
        case _:
            return ""


def _inlines(children: Sequence[Token]) -> tuple[tree.Inline, ...]:
    """Turn markdown-it's flat inline tokens into a tree, without recursion."""
    frames: list[tuple[Token | None, list[tree.Inline]]] = [(None, [])]
    for token in children:
        if token.nesting > 0:
            frames.append((token, []))
        elif token.nesting < 0:
            opening, content = frames.pop()
            frames[-1][1].extend(_wrap(opening, content, deep=len(frames) > _DEPTH))
        elif token.type == "image":
            url, alt = str(token.attrGet("src") or ""), _alt(token)
            frames[-1][1].extend(_expose(tree.ImageInline(url=url, alt=alt), alt))
        elif token.content or token.type != "text":
            frames[-1][1].append(_inline(token))
    return tuple(frames[0][1])


def _wrap(
    opening: Token | None, content: list[tree.Inline], *, deep: bool
) -> Sequence[tree.Inline]:
    if opening is None or deep:
        return content
    if opening.markup == "autolink":
        # The label is an address too, so no character in it may act as a mark.
        label = escape_url("".join(part.text for part in content if isinstance(part, tree.Text)))
        content = [_text(label)]
    if opening.type == "link_open":
        link = tree.Link(url=str(opening.attrGet("href") or ""), children=tuple(content))
        return _expose(link, plain(content))
    wrapper = _WRAPPERS[opening.type]
    return [wrapper(children=tuple(content))]


def _expose(link: tree.Link | tree.ImageInline, label: str) -> Sequence[tree.Inline]:
    """Return a link. If its label looks like another address, return the label with the true address after it."""
    if not is_deceptive(label, link.url):
        return [link]
    address = escape_url(link.url)
    children = link.children if isinstance(link, tree.Link) else (_text(label),)
    true_link = tree.Link(url=link.url, children=(_text(address),))
    return [*children, _text(" ("), true_link, _text(")")]


def _text(text: str) -> tree.Text:
    return tree.Text(text=text, source=text)


def _native(token: Token) -> tree.Text:
    match token.type:
        case "address":
            text, native = token.content, tree.Native(kind="address", value=token.content)
        case "formula":
            native = tree.Native(kind="formula", value=expression(token.content))
            text = token.content
        case kind:
            value = token.content[len("<sub>") : -len("</sub>")]
            native = tree.Native(kind="sup" if kind == "sup" else "sub", value=value)
            text = script(value, raised=kind == "sup")
    return tree.Text(text=text, source=text, native=native)


def _inline(token: Token) -> tree.Inline:
    match token.type:
        case "code_inline":
            return tree.Code(text=token.content)
        case "softbreak" | "hardbreak":
            return tree.Break(hard=token.type == "hardbreak")
        case "address" | "formula" | "sub" | "sup":
            return _native(token)
        case _:
            text = _shown(token.content)
            return tree.Text(
                text=text, source=(token.markup or text) if text == token.content else text
            )


_RAISED = str.maketrans("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ")
_LOWERED = str.maketrans("0123456789+-=()aeoxhklmnpst", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₒₓₕₖₗₘₙₚₛₜ")


def script(text: str, *, raised: bool) -> str:
    """Return superscript or subscript text as plain text.

    >>> script("2", raised=True), script("i,j", raised=False)
    ('²', '_i,j')
    """
    table = _RAISED if raised else _LOWERED
    if all(ord(char) in table for char in text):
        return text.translate(table)
    return ("^" if raised else "_") + text


_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))


def expression(formula: str) -> str:
    r"""Return a formula without its delimiters. Punctuation after it becomes part of it.

    >>> expression("$x^2$"), expression(r"\(a\),")
    ('x^2', 'a,')
    """
    words = formula.strip().rstrip(".,; ")
    behind = formula.strip()[len(words) :].strip()
    for opening, closing in _DELIMITERS:
        if words.startswith(opening) and words.endswith(closing):
            return words[len(opening) : -len(closing)].strip() + behind
    return formula.strip()


def _shown(text: str) -> str:
    """Return a text without characters that an entity or a link's address hid from `clean_outbound`."""
    return text if text.isprintable() else clean_outbound(text)


def _alt(image: Token) -> str:
    """Return the plain text of an image's label, which may contain further images."""
    words, stack = [], list(reversed(image.children or ()))
    while stack:
        token = stack.pop()
        if token.type == "image":
            stack.extend(reversed(token.children or ()))
        elif token.type.endswith("break"):
            words.append(" ")
        else:
            words.append(_shown(token.content))
    return "".join(words)


_HALF_LINE = re.compile(r"[ >]*(?:=+|[*+]|#{1,6}|[ :|-]*)[ ]*")
"""A last line whose meaning is not decided yet: half a rule, a heading's or item's marker, a table's second row."""

_LONGEST_HALF = 200
"""Maximum length of such a line, characters. The meaning of a longer one is certain."""


def close_open(markdown: str) -> str:
    r"""Close open formatting at the end of an unfinished text, so that it renders cleanly.

    Closes an open fence, and open code, emphasis and links. Holds back markers whose meaning is not decided yet.

    >>> close_open("**bold"), close_open("see [docs](http://exa"), close_open("a\n-")
    ('**bold**', 'see docs', 'a')
    """
    text = clean_outbound(markdown)
    stream = block_tokens(text)
    leaf = next((token for token in reversed(stream) if token.type in {"fence", "inline"}), None)
    if leaf is not None and leaf.type == "fence":
        return _close_fence(text, leaf)
    head, _, last = text.rpartition("\n")
    if last and len(last) <= _LONGEST_HALF and _HALF_LINE.fullmatch(last):
        text = head
        stream = block_tokens(text)
    inlines = [token for token in stream if token.type == "inline"]
    return _finish(text, inlines[-1].content.rstrip()) if inlines else text


def _finish(text: str, content: str) -> str:
    """Finish the last inline text, unless another block follows it."""
    body = text.rstrip()
    if not content or not body.endswith(content.rsplit("\n", 1)[-1]):
        return text
    return _replace_tail(body, content, finish_inline(content))


def _replace_tail(body: str, content: str, finished: str) -> str:
    """Replace the unfinished inline text, which may span prefixed lines, with the finished one."""
    same = 0
    for left, right in zip(content, finished, strict=False):
        if left != right:
            break
        same += 1
    dropped = content[same:]
    lines = dropped.split("\n")
    if len(lines) == 1:
        return body[: len(body) - len(dropped)] + finished[same:]
    kept = body.split("\n")[: -len(lines) + 1]
    kept[-1] = kept[-1][: len(kept[-1]) - len(lines[0])]
    return "\n".join(kept) + finished[same:]


def _close_fence(text: str, fence: Token) -> str:
    """Close the text's last fence, if it is open at the end."""
    lines = text.removesuffix("\n").split("\n")
    start, end = fence.map or [0, 0]
    mark = fence.markup
    if end < len(lines):
        return text
    last = lines[-1].strip(" >")
    if len(lines) - 1 > start and last and not last.strip(mark[0]):
        if len(last) >= len(mark):
            return text
        lines.pop()
    opening = lines[start]
    prefix = "".join(char if char in "> " else " " for char in opening[: opening.find(mark)])
    return "\n".join([*lines, prefix + mark])
