"""markdown-it-py configured for chat: no HTML, no references, limited nesting, emphasis next to CJK."""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.common.utils import isMdAsciiPunct, isPunctChar
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock, blockquote, list_block
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType
from typing_extensions import override

from bots.text.characters import clean_outbound

MAX_LEVEL = 16
"""Quotes and lists nest to this token level (a quote is one, a list two); deeper markers stay text.

markdown-it itself drops what lies beyond its `maxNesting` (20), so the limit must stay below that.
"""

BlockRule = Callable[[StateBlock, int, int, bool], bool]


def flanking(before: str, after: str) -> tuple[bool, bool]:
    """Return whether a delimiter run between two characters is left- and right-flanking.

    CommonMark's rule with two changes for CJK text, which has no spaces between words: CJK punctuation
    counts as a letter, and other punctuation may stand next to a CJK character as if next to a space.

    >>> flanking("：", "冒"), flanking(" ", "a"), flanking("a", ".")
    ((True, True), (True, False), (False, True))
    """
    blank_before, blank_after = before.isspace(), after.isspace()
    cjk_before, cjk_after = is_cjk(before), is_cjk(after)
    dot_before = not cjk_before and _is_punctuation(before)
    dot_after = not cjk_after and _is_punctuation(after)
    left = not blank_after and (not dot_after or blank_before or dot_before or cjk_before)
    right = not blank_before and (not dot_before or blank_after or dot_after or cjk_after)
    return left, right


def is_cjk(char: str) -> bool:
    """Return whether a character is of a script without spaces between words: Han, kana, Hangul, their punctuation."""
    if char < "\u1100" or "\U0001f000" <= char <= "\U0001fbff":
        return False
    return unicodedata.east_asian_width(char) in "WFH"


def _is_punctuation(char: str) -> bool:
    return isMdAsciiPunct(ord(char)) or isPunctChar(char)


def delimiters(source: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether the run `source[start:end]` of one of `*_~` can open and can close."""
    before = source[start - 1] if start else " "
    after = source[end] if end < len(source) else " "
    left, right = flanking(before, after)
    if source[start] != "_":
        return left, right
    return (
        left and (not right or _is_punctuation(before)),
        right and (not left or _is_punctuation(after)),
    )


class _OutlineState(StateBlock):
    """Keeps only top-level tokens and their list items: a list of tiny items makes half a million tokens."""

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


def _limit_level(rule: BlockRule) -> BlockRule:
    def limited(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it's call
        return state.level < MAX_LEVEL and rule(state, start, end, silent)

    return limited


@cache
def _engine() -> MarkdownIt:
    """Build the parser, which has no state of its own, once: it takes 0.3 ms, and a reply is parsed several times."""
    engine = MarkdownIt("commonmark", {"html": False})
    engine.inline = _InlineParser()
    engine.enable(["table", "strikethrough"])
    # References hide text, and a piece without its definitions could not be rendered.
    engine.disable(["reference", "html_block", "html_inline", "text_join"])
    engine.core.ruler.enableOnly(["normalize", "block"])
    rules = engine.block.ruler
    rules.at("blockquote", _limit_level(blockquote), {"alt": ["paragraph", "blockquote", "list"]})
    rules.at("list", _limit_level(list_block), {"alt": ["paragraph", "blockquote"]})
    return engine


def block_tokens(markdown: str) -> Sequence[Token]:
    """Parse the block structure of Markdown alone: `inline` tokens keep their text in `content`."""
    return _engine().parse(clean_outbound(markdown))


def inline_tokens(content: str) -> Sequence[Token]:
    """Parse the content of an `inline` token."""
    return _engine().inline.parse(content, _engine(), {}, [])


def outline(markdown: str) -> Sequence[Token]:
    """Parse cleaned Markdown to its top-level tokens and, of top-level lists, the items' openings."""
    engine = _engine()
    state = _OutlineState(markdown, engine, {}, [])
    engine.block.tokenize(state, state.line, state.lineMax)
    return state.tokens
