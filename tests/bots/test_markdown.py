"""The Markdown tree: emphasis in CJK text, unfinished text, and hostile text."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.text import tree
from bots.text.markdown import close_open, parse
from bots.text.tree import plain, walk
from bus.characters import clean
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents


def text(words: str) -> tree.Text:
    return tree.Text(text=words, source=words)


def native(words: str, kind: Literal["address", "formula", "sub", "sup"], value: str) -> tree.Text:
    return tree.Text(text=words, source=words, native=tree.Native(kind=kind, value=value))


def inlines(markdown: str) -> tuple[tree.Inline, ...]:
    (block,) = parse(markdown)
    assert isinstance(block, tree.Paragraph)
    return block.children


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("**a**", (tree.Strong(children=(text("a"),)),)),
        (
            "*a* _b_",
            (tree.Emphasis(children=(text("a"),)), text(" "), tree.Emphasis(children=(text("b"),))),
        ),
        ("~~a~~", (tree.Strike(children=(text("a"),)),)),
        ("`a *b*`", (tree.Code(text="a *b*"),)),
        ("[a](http://x)", (tree.Link(url="http://x", children=(text("a"),)),)),
        ("![a *b*](u)", (tree.ImageInline(url="u", alt="a b"),)),
        (
            "a\nb  \nc",
            (text("a"), tree.Break(hard=False), text("b"), tree.Break(hard=True), text("c")),
        ),
        (
            "\\*a &amp;",
            (tree.Text(text="*", source="\\*"), text("a "), tree.Text(text="&", source="&amp;")),
        ),
        ("2 * 3 * 4", (text("2 * 3 * 4"),)),
        ("snake__case__name", (text("snake__case__name"),)),
        ("<b>x</b>", (text("<b>x</b>"),)),
        ("[a]: http://x", (text("[a]: "), native("http://x", "address", "http://x"))),
        ("$a_1*b*c$", (native("$a_1*b*c$", "formula", "a_1*b*c"),)),
        (
            "a*b*c __init__ \\(x_1*y*\\)",
            (text("a*b*c __init__ "), native("\\(x_1*y*\\)", "formula", "x_1*y*")),
        ),
        ("$5 and $6", (text("$5 and $6"),)),
        ("||*a*||", (tree.Spoiler(children=(tree.Emphasis(children=(text("a"),)),)),)),
        ("x<sup>2</sup>", (text("x"), native("²", "sup", "2"))),
        ("[x](javascript:alert)", (text("[x](javascript:alert)"),)),
    ],
)
def test_inline_markdown_is_parsed(markdown: str, expected: tuple[tree.Inline, ...]) -> None:
    assert inlines(markdown) == expected


@pytest.mark.parametrize(
    "markdown",
    [
        "**注意：**冒号",
        "中**“引用”**文",
        "这是**「重点」**内容",
        "한국어**(강조)**입니다",
        "前**abc。**后",
        "日本~~（削除）~~語",
    ],
)
def test_emphasis_needs_no_spaces_in_cjk_text(markdown: str) -> None:
    assert any(isinstance(inline, tree.Strong | tree.Strike) for inline in inlines(markdown))
    assert "*" not in plain(inlines(markdown))


def test_block_markdown_is_parsed() -> None:
    blocks = parse(SAMPLE)
    kinds = [type(block) for block in walk(blocks)]
    assert kinds.count(tree.ListBlock) == 3
    assert {
        tree.HeadingBlock,
        tree.Paragraph,
        tree.Quote,
        tree.CodeBlock,
        tree.Table,
        tree.Rule,
    } < set(kinds)
    table = next(block for block in blocks if isinstance(block, tree.Table))
    assert table.alignments == ("left", "right")
    assert plain(table.rows[0][0]) == "a | b"
    code = next(block for block in walk(blocks) if isinstance(block, tree.CodeBlock))
    assert (code.language, code.text) == ("py", 'x = "<at id=all></at>"')


def test_lists_have_their_start_and_tightness() -> None:
    first, second, third = parse("3. a\n4. b\n\n- x\n\n- y\n\n0) z")
    assert isinstance(first, tree.ListBlock)
    assert (first.start, first.tight, len(first.items)) == (3, True, 2)
    assert isinstance(second, tree.ListBlock)
    assert (second.start, second.tight) == (None, False)
    assert isinstance(third, tree.ListBlock)
    assert third.start == 0


def test_deep_nesting_is_bounded_and_loses_nothing() -> None:
    blocks = list(walk(parse("> " * 200 + "- " * 200 + "end")))
    assert len(blocks) < 30
    last = blocks[-1]
    assert isinstance(last, tree.Paragraph)
    assert plain(last.children).endswith("end")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_parse_and_close(name: str) -> None:
    markdown = HOSTILE[name]
    assert isinstance(parse(markdown), tuple)
    clean(close_open(markdown)).encode()


@pytest.mark.parametrize(
    ("partial", "closed"),
    [
        ("", ""),
        ("```py\nprint(", "```py\nprint(\n```"),
        ("```py\nx\n``", "```py\nx\n```"),
        ("```py\nx\n```", "```py\nx\n```"),
        ("- a\n  ```py\n  x\n", "- a\n  ```py\n  x\n  ```"),
        ("**a", "**a**"),
        ("***a", "***a***"),
        ("**a*", "**a**"),
        ("a **", "a"),
        ("a ~~b", "a ~~b~~"),
        ("x `a", "x `a`"),
        ("x\n=", "x"),
        ("> q **b\n> c", "> q **b\n> c**"),
        ("[**a**](http://exam", "**a**"),
        ("2 * 3", "2 * 3"),
        ("| a | b |\n|--", "| a | b |"),
        ("done.", "done."),
        ("so \\(a_1*b", "so \\(a_1*b\\)"),
        ("**so $$a*b", "**so $$a*b$$**"),
        ("at `/a_b/*", "at `/a_b/*`"),
        ("at /a_b/*.py, *b", "at /a_b/*.py, *b*"),
    ],
)
def test_open_constructs_of_a_partial_text_are_closed(partial: str, closed: str) -> None:
    assert close_open(partial) == closed


def test_every_prefix_closes_and_keeps_its_words() -> None:
    for end in range(len(SAMPLE)):
        parse(close_open(SAMPLE[:end]))


@given(documents)
def test_closing_is_harmless_to_any_text(markdown: str) -> None:
    letters = [char for char in clean(markdown) if char.isalpha()]
    kept = [char for char in close_open(markdown) if char.isalpha()]
    assert "".join(letters).startswith("".join(kept[:5]))


@given(st.text(max_size=300))
def test_any_text_parses_and_cleaning_is_idempotent(markdown: str) -> None:
    parse(markdown)
    assert clean(clean(markdown)) == clean(markdown)


def test_a_line_break_in_a_cell_is_one_and_elsewhere_it_is_text() -> None:
    [table] = parse("|a|\n|-|\n|**one <br>two**<BR/>three `<br>` \\<br>|")
    assert isinstance(table, tree.Table)
    assert tree.plain(table.rows[0][0]) == "one\ntwo\nthree <br> <br>"
    [paragraph] = parse("one<br>two")
    assert isinstance(paragraph, tree.Paragraph)
    assert tree.plain(paragraph.children) == "one<br>two"
