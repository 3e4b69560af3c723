"""Slack's `markdown` block and its fallback: complete, bounded, and nothing in them pings."""

import re

import pytest
from hypothesis import given, settings

from bots.slack.format import MAX_BLOCK, MAX_TEXT, escape, fits, render
from bots.text.split import split
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents
from tests.fakes.slack_checks import block_error

LIVE = re.compile(r"<(?:![a-z]|@[A-Z]|#[A-Z])|@(?:channel|here|everyone)\b")
IMAGE = re.compile(r"(?<!\\)!\[")


def block(markdown: str) -> str:
    """Return the Markdown of a message; what stands in a table is literal."""
    blocks = render(markdown).blocks
    assert {found["type"] for found in blocks} <= {"markdown", "table"}
    assert block_error(list(blocks)) == ""
    return "\n".join(str(found["text"]) for found in blocks if found["type"] == "markdown")


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Head **x**", "*Head x*"),
        ("**a** *b* ~~c~~ `d`", "*a* _b_ ~c~ `d`"),
        ("a < b & c", "a &lt; b &amp; c"),
        ("[x|y](http://a/?q=<b>)", "<http://a/?q=%3Cb%3E|x|y>"),
        ("[x](mailto:a@b.c)", "<mailto:a@b.c|x>"),
        ("[x](/etc/passwd)", "x (/etc/passwd)"),
        ("![p](http://a/b.png)", "<http://a/b.png|p>"),
        ("- a\n  - b\n- c", "• a\n    • b\n• c"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("> a\n> b", "> a\n> b"),
        ("```py\na < b\n```", "```\na &lt; b\n```"),
        ("|名|n|\n|-|-:|\n|a|10|", "```\n名 |  n\n---+---\na  | 10\n```"),
        ("---", "———"),
        ("", "…"),
        ("<!channel> <@U1>", "&lt;!channel&gt; &lt;@U1&gt;"),
    ],
)
def test_fallback_text(markdown: str, text: str) -> None:
    assert render(markdown).text == text


def test_the_block_is_markdown_as_it_was() -> None:
    same = "# Head\n\n**a** *b* ~~c~~ `d`\n\n- x\n  - y\n\n```py\nq\n```"
    assert block(same) == same


def test_nothing_pings() -> None:
    for markdown in (
        SAMPLE,
        "`<!channel>`",
        "```\n<@U1>\n```",
        "<**!here**>",
        "@**channel**",
        "&lt;!here>",
    ):
        shown = render(markdown)
        assert not LIVE.search(block(markdown))
        assert "<!" not in shown.text
        assert "<@" not in shown.text


def test_html_in_code_is_left_alone() -> None:
    assert "<!DOCTYPE html>" in block("```html\n<!DOCTYPE html>\n```")


def test_images_become_links() -> None:
    assert not IMAGE.search(block("a!![x](http://a/b) ![y](http://c) hey![z](u)"))


def test_limits() -> None:
    assert not fits("x" * 11_001)
    assert fits("x" * 11_000)
    assert not fits("# a\n\n" * 50)
    assert not fits("---\n\n" * 50)
    long = render("&" * 30_000)
    assert len(long.text) <= MAX_TEXT
    assert len(block("x" * 30_000)) <= MAX_BLOCK
    assert render("```\n" + "x\n" * 9_000 + "```").text.endswith("```")


def test_escape() -> None:
    assert escape("<!here> & <") == "&lt;!here&gt; &amp; &lt;"


def test_every_prefix_renders() -> None:
    for end in range(0, len(SAMPLE), 2):
        assert render(SAMPLE[:end]).text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts(name: str) -> None:
    shown = render(HOSTILE[name][:6_000])
    assert len(shown.text) <= MAX_TEXT
    assert all(fits(piece) for piece in split(HOSTILE[name][:11_500], fits))


@settings(max_examples=40, deadline=None)
@given(documents)
def test_any_document(markdown: str) -> None:
    shown = render(markdown)
    assert not LIVE.search(shown.text)
    assert not LIVE.search(block(markdown))
