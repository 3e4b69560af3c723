"""markdown-it-py configured for chat: no references, no HTML but `<details>`, limited nesting, emphasis next to CJK.

Literal spans (`bots/text/literals.py`) are removed before any other rule reads a paragraph.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock, blockquote, list_block
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType
from typing_extensions import override

from bots.text.block_rules import details_block, formula_block
from bots.text.flanking import delimiters
from bots.text.literals import LiteralSpans, Span
from bus.characters import clean_outbound

MAX_LEVEL = 16
"""Maximum token level of nested quotes and lists (a quote counts one, a list two). Deeper markers stay text.

It must be below markdown-it's `maxNesting` (20), beyond which markdown-it drops text.
"""

BlockRule = Callable[[StateBlock, int, int, bool], bool]


class _OutlineState(StateBlock):
    """Keeps only top-level tokens and their list items, because a list of tiny items makes half a million tokens."""

    _gone: Token | None = None

    @override
    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        level = self.level - (nesting < 0)
        if level == 0 or (level == 1 and ttype == "list_item_open"):
            return super().push(ttype, tag, nesting)
        self.level += nesting
        if self._gone is None:
            self._gone = Token(ttype, tag, nesting)
        return self._gone


class _InlineState(StateInline):
    def __init__(self, src: str, md: MarkdownIt, env: EnvType, out_tokens: list[Token]) -> None:
        super().__init__(src, md, env, out_tokens)
        self.literals = LiteralSpans(src)

    @override
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:
        end = start
        while end < self.posMax and self.src[end] == self.src[start]:
            end += 1
        can_open, can_close = delimiters(self.src, start, end)
        return Scanned(can_open, can_close, end - start)


class _InlineParser(ParserInline):
    @override
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _InlineState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _text(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
    """Read plain text up to a possible mark or the next literal span."""
    found = state.md.inline.terminator_re.search(state.src, state.pos)
    end = min(found.start(), state.posMax) if found else state.posMax
    if isinstance(state, _InlineState):
        end = min(end, state.literals.next_start(state.pos, end))
    if end == state.pos:
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True


def _literal(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
    """Read a literal span."""
    span = state.literals.at(state.pos) if isinstance(state, _InlineState) else None
    if span is None or span.end > state.posMax:
        return False
    if not silent:
        _push_literal(state, span)
    state.pos = span.end
    return True


def _push_literal(state: StateInline, span: Span) -> None:
    source = state.src[span.start : span.end]
    match span.kind:
        case "text":
            state.append_pending(source)
        case "address" if state.linkLevel:
            state.append_pending(source)
        case "spoiler":
            state.push("spoiler_open", "", 1)
            limit = state.posMax
            state.pos, state.posMax = span.start + 2, span.end - 2
            state.md.inline.tokenize(state)
            state.posMax = limit
            state.push("spoiler_close", "", -1)
        case _:
            state.push(span.kind, "", 0).content = source


def _limit_level(rule: BlockRule) -> BlockRule:
    def limited(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
        return state.level < MAX_LEVEL and rule(state, start, end, silent)

    return limited


@cache
def _engine() -> MarkdownIt:
    """Build the stateless parser once. It takes 0.3 ms, and a reply is parsed several times."""
    engine = MarkdownIt("commonmark", {"html": False})
    engine.inline = _InlineParser()
    engine.inline.ruler.at("text", _text)
    engine.inline.ruler.before("text", "literal", _literal)
    engine.enable(["table", "strikethrough"])
    # References hide text, and a piece could not be rendered without the definitions in other pieces.
    engine.disable(["reference", "html_block", "html_inline", "text_join"])
    engine.core.ruler.enableOnly(["normalize", "block"])
    rules = engine.block.ruler
    rules.at("blockquote", _limit_level(blockquote), {"alt": ["paragraph", "blockquote", "list"]})
    rules.at("list", _limit_level(list_block), {"alt": ["paragraph", "blockquote"]})
    ends = ["paragraph", "blockquote", "list"]
    rules.before("table", "formula", formula_block, {"alt": ends})
    rules.before("table", "details", details_block, {"alt": ends})
    return engine


def block_tokens(markdown: str) -> Sequence[Token]:
    """Parse only the block structure of Markdown. `inline` tokens keep their text in `content`."""
    return _engine().parse(clean_outbound(markdown))


def inline_tokens(content: str) -> Sequence[Token]:
    """Parse the content of an `inline` token."""
    return _engine().inline.parse(content, _engine(), {}, [])


def outline(markdown: str) -> Sequence[Token]:
    """Parse cleaned Markdown to its top-level tokens and the opening tokens of items in top-level lists."""
    engine = _engine()
    state = _OutlineState(markdown, engine, {}, [])
    engine.block.tokenize(state, state.line, state.lineMax)
    return state.tokens
