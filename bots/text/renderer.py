"""Renders the tree as canonical Markdown in a platform's dialect. No parser can misread it. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bots.text import tree

_BACKTICKS = re.compile("`+")
_NO_LANGUAGE = re.compile(r"[^\w+#.-]")
_MARKS: Mapping[type[tree.Inline], str] = {
    tree.Strong: "**",
    tree.Emphasis: "*",
    tree.Strike: "~~",
    tree.Spoiler: "||",
}
_DASHES = {"": "---", "left": ":--", "center": ":-:", "right": "--:"}


class MarkdownDialect(Protocol):
    """The differences between platforms' Markdown."""

    def text(self, text: tree.Text) -> str:
        """Escape literal text."""
        ...

    def code(self, code: str) -> str:
        """Render code in a line."""
        ...

    def code_block(self, code: str, language: str) -> str:
        """Render a block of code."""
        ...

    def link(self, url: str, label: str) -> str:
        """Render a link whose label is already Markdown."""
        ...

    def image(self, image: tree.ImageInline) -> str:
        """Render an image, or a link instead."""
        ...

    def heading(self, level: int) -> int:
        """Return the level of a heading in this dialect."""
        ...

    def box(self, *, checked: bool) -> str:
        """Return the text of a task's checkbox."""
        ...

    def table(self, table: str) -> str:
        """Render a GFM table, unchanged or as code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of output. `flat` lines are not indented, even in lists."""

    text: str
    flat: bool = False


def render_blocks(
    blocks: Sequence[tree.Block], dialect: MarkdownDialect, *, flat_code: bool = False
) -> str:
    """Render blocks as Markdown, with collapsible details expanded.

    `flat_code`: do not indent fences, for platforms that need that.
    """
    return "\n".join(
        line.text
        for line in _Renderer(dialect, flat=flat_code).blocks(
            tree.open_details(blocks), tight=False
        )
    )


def fence(code: str, language: str) -> str:
    r"""Fence code with more backticks than it contains.

    >>> fence("a ``` b", "py")
    '````py\na ``` b\n````'
    """
    longest = max((len(run) for run in _BACKTICKS.findall(code)), default=0)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{_NO_LANGUAGE.sub('', language)}\n{code}\n{mark}"


def code_span(code: str) -> str:
    """Render inline code with more backticks than it contains.

    >>> code_span("a"), code_span("a`b"), code_span("`")
    ('`a`', '``a`b``', '`` ` ``')
    """
    runs = {len(run) for run in _BACKTICKS.findall(code)}
    mark = "`" * next(size for size in range(1, len(runs) + 2) if size not in runs)
    padded = (
        code.startswith("`")
        or code.endswith("`")
        or (code[:1] == code[-1:] == " " and code.strip())
    )
    return f"{mark} {code} {mark}" if padded else f"{mark}{code}{mark}"


class _Renderer:
    def __init__(self, dialect: MarkdownDialect, *, flat: bool) -> None:
        self._dialect = dialect
        self._flat = flat

    def blocks(self, blocks: Sequence[tree.Block], *, tight: bool) -> list[_Line]:
        lines: list[_Line] = []
        other = False
        for index, block in enumerate(blocks):
            if index and (not tight or _would_merge(blocks[index - 1], block)):
                lines.append(_Line(text=""))
            before = blocks[index - 1] if index else None
            if isinstance(block, tree.ListBlock):
                # Two consecutive lists would merge if they had the same marker.
                other = isinstance(before, tree.ListBlock) and not other
                lines += self._list(block, other=other)
            else:
                lines += self._block(block)
        return lines

    def _block(self, block: tree.Block) -> list[_Line]:  # noqa: PLR0911 - one return per kind
        match block:
            case tree.HeadingBlock(level=level, children=children):
                title = self._inlines(children).replace("\n", " ")
                return [_Line(text=f"{'#' * self._dialect.heading(level)} {title}".rstrip())]
            case tree.Paragraph(children=children):
                return _lines(self._inlines(children))
            case tree.ListBlock():
                return self._list(block, other=False)
            case tree.Quote(children=children):
                return [
                    _Line(text=f"> {line.text}".rstrip())
                    for line in self.blocks(children, tight=False) or [_Line(text="")]
                ]
            case tree.CodeBlock(text=text, language=language):
                return _lines(self._dialect.code_block(text, language), flat=self._flat)
            case tree.Table():
                return _lines(self._dialect.table(self._table(block)), flat=self._flat)
            case _:
                return [_Line(text="---")]

    def _list(self, listing: tree.ListBlock, *, other: bool) -> list[_Line]:
        lines: list[_Line] = []
        for index, (item, check) in enumerate(zip(listing.items, listing.checks, strict=True)):
            marker = "* " if other else "- "
            if listing.start is not None:
                marker = f"{listing.start + index}{')' if other else '.'} "
            box = "" if check is None else f"{self._dialect.box(checked=check)} "
            if index and not listing.tight:
                lines.append(_Line(text=""))
            inner = self.blocks(item, tight=listing.tight) or [_Line(text="")]
            if inner[0].flat:
                lines.append(_Line(text=marker.rstrip()))
            for number, line in enumerate(inner):
                lead = marker + box if number == 0 else " " * len(marker)
                lines.append(
                    line
                    if line.flat
                    else _Line(
                        text=(lead + line.text).rstrip(" ") if not line.text else lead + line.text
                    )
                )
        return lines

    def _table(self, table: tree.Table) -> str:
        dashes = [_DASHES[align] for align in table.alignments]
        rows = [[self._cell(cell) for cell in row] for row in (table.header, *table.rows)]
        rows.insert(1, dashes)
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def _cell(self, cell: Sequence[tree.Inline]) -> str:
        # A row is one line.
        words = self._inlines(cell).replace("  \n", " / ").replace("\n", " / ")
        return re.sub(r"(?<!\\)\|", r"\\|", words)

    def _inlines(self, inlines: Sequence[tree.Inline]) -> str:
        parts: list[str] = []
        for inline in inlines:
            part = self._inline(inline)
            if parts and parts[-1].endswith("!") and part.startswith("["):
                # Escape the "!": "![" would start an image.
                parts[-1] = parts[-1][:-1] + self._dialect.text(tree.Text(text="!", source="\\!"))
            if parts and _would_mix(parts[-1], part, inline):
                parts.append("\u2060")
            parts.append(part)
        return "".join(parts)

    def _inline(self, inline: tree.Inline) -> str:  # noqa: PLR0911 - one return per kind
        match inline:
            case tree.Text():
                return self._dialect.text(inline)
            case tree.Code(text=text):
                return self._dialect.code(text)
            case tree.Link(url=url, children=children):
                return self._dialect.link(url, self._inlines(children))
            case tree.ImageInline():
                return self._dialect.image(inline)
            case tree.Break(hard=hard):
                return "  \n" if hard else "\n"
            case _:
                return self._style(inline)

    def _style(self, inline: tree.Style) -> str:
        inner = self._inlines(inline.children)
        mark = _MARKS[type(inline)]
        return f"{mark}{inner}{mark}"


def _lines(text: str, *, flat: bool = False) -> list[_Line]:
    return [_Line(text=line, flat=flat) for line in text.split("\n")]


def _would_mix(before: str, after: str, inline: tree.Inline) -> bool:
    """Return whether two neighbors would merge, because one ends with the delimiter that the next begins with."""
    if isinstance(inline, tree.Text | tree.Break):
        return False
    return before[-1:] == after[:1] != "" and after[0] in "*~`"


def _would_merge(before: tree.Block, after: tree.Block) -> bool:
    """Return whether two blocks of a tight item need a blank line between them."""
    return isinstance(before, tree.Paragraph | tree.Quote) and isinstance(
        after, tree.Paragraph | tree.Rule | tree.Table
    )
