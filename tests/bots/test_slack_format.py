"""Slack's `markdown` block and its fallback text: complete, within the limits, and without notifications."""

import html
import re
from typing import Any

import pytest
from hypothesis import given

from bots.slack.format import MAX_BLOCK, MAX_TEXT, escape, fits, render, render_plain
from bots.text.markdown import close_open
from bots.text.split_markdown import split_markdown
from bus.messages import Button
from gateway.playground.slack.checks import block_error, text_findings
from gateway.playground.slack.state import block_words
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents

TOKEN = re.compile(r"<(?:![a-z]|@[A-Z]|#[A-Z])")
LIVE = re.compile(TOKEN.pattern + r"|@(?:channel|here|everyone)\b")
IMAGE = re.compile(r"(?<!\\)!\[")


def block(markdown: str) -> str:
    """Return the Markdown of a message. Text in tables and rich text is literal."""
    blocks = render(markdown).blocks
    assert {found["type"] for found in blocks} <= {"markdown", "table", "rich_text", "divider"}
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
def test_the_fallback_text_is_plain(markdown: str, text: str) -> None:
    assert render(markdown).text == text


def test_the_block_is_markdown_as_it_was() -> None:
    same = "# Head\n\n**a** *b* ~~c~~ `d`\n\n- x\n  - y\n\n```py\nq\n```"
    assert block(same) == same


def shown(markdown: str) -> str:
    """Return what people see of a message."""
    return "\n".join(map(block_words, render(markdown).blocks))


@pytest.mark.parametrize(
    "words",
    [
        "npm i @types/node",
        "$a_1*b_1 + a_2*b_2$",
        r"\[\sum_{i=1}^n a_i*b_i\]",
        "call __init__ with *args and **kwargs",
        "a*b*c at C:\\x_y and /a_b/_c_/d",
        "https://medium.com/@someone/_a_*b*?x=1&copy=2",
        "<YOUR_TOKEN> for {user_id}, @here and @channel",
    ],
)
def test_text_is_shown_and_copied_as_written(words: str) -> None:
    assert words in shown(words)
    assert words in shown(f"- *so*: {words}")
    assert words in html.unescape(render(words).text)


def test_other_forms_of_text_have_a_rendering() -> None:
    assert block("- [x] done\n- [ ] open") == "- [x] done\n- [ ] open"
    assert render("- [x] done\n- [ ] open").text == "• ☑ done\n• ☐ open"
    assert shown("- [x] __init__") == "☑ __init__"
    assert block("<details>\n<summary>More</summary>\n\ninside\n</details>") == "**More**\n\ninside"
    assert shown("it is ||hidden||") == "it is ||hidden||"
    assert shown("H<sub>2</sub>O, x<sup>2</sup>") == "H₂O, x²"
    assert shown("see[^1]\n\n[^1]: note") == "see[^1]\n[^1]: note"
    assert block("$$\na_1*b\n$$") == "```latex\n$$\na_1*b\n$$\n```"


def test_rich_text_keeps_the_structure() -> None:
    markdown = (
        "3. a\n   - @here\n\n   ```\n   x\n   ```\n4. b\n\n> q @here\n> - i\n\n---\n\n# @here"
    )
    blocks = render(markdown).blocks
    assert [one["type"] for one in blocks] == ["rich_text", "rich_text", "markdown", "rich_text"]
    kinds = [part["type"].removeprefix("rich_text_") for part in blocks[0]["elements"]]
    assert kinds == ["list", "list", "preformatted", "list"]
    first, inner, _, last = blocks[0]["elements"]
    assert (first["offset"], last["offset"], inner["style"], inner["indent"]) == (2, 3, "bullet", 1)
    assert shown(markdown) == "a\n@here\nx\nb\nq @here\n• i\n---\n@here"


def test_no_text_pings_anybody() -> None:
    for markdown in (
        SAMPLE,
        "`<!channel>`",
        "```\n<@U1>\n```",
        "<**!here**>",
        "@**channel**",
        "&lt;!here>",
    ):
        assert not LIVE.search(block(markdown))
        assert not TOKEN.search(render(markdown).text)


def test_html_in_code_is_left_alone() -> None:
    assert "<!DOCTYPE html>" in block("```html\n<!DOCTYPE html>\n```")


def test_images_become_links() -> None:
    assert not IMAGE.search(block("a!![x](http://a/b) ![y](http://c) hey![z](u)"))


def test_texts_above_slacks_limits_do_not_fit() -> None:
    assert not fits("x" * 11_001)
    assert fits("x" * 11_000)
    assert not fits("# a\n\n" * 50)
    assert not fits("---\n\n" * 50)
    long = render("&" * 30_000)
    assert len(long.text) <= MAX_TEXT
    assert len(block("x" * 30_000)) <= MAX_BLOCK
    assert render("```\n" + "x\n" * 9_000 + "```").text.endswith("```")


def test_control_characters_of_mrkdwn_are_escaped() -> None:
    assert escape("<!here> & <") == "&lt;!here&gt; &amp; &lt;"


def test_every_prefix_renders() -> None:
    for end in range(0, len(SAMPLE), 2):
        for part in (SAMPLE[:end], close_open(SAMPLE[:end])):
            shown = render(part)
            assert shown.text
            assert block_error(list(shown.blocks)) == ""
            assert list(text_findings(shown.text, list(shown.blocks))) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_mention_nobody(name: str) -> None:
    shown = render(HOSTILE[name][:6_000])
    assert len(shown.text) <= MAX_TEXT
    assert all(fits(piece) for piece in split_markdown(HOSTILE[name][:11_500], fits))


@given(documents)
def test_any_document_mentions_nobody_and_fits_in_pieces(markdown: str) -> None:
    assert not TOKEN.search(render(markdown).text)
    assert not LIVE.search(block(markdown))
    assert "\u2060" not in str(render(markdown))


TABLE = "| Name | n |\n| :-- | --: |\n| **Ann** [x](https://a.b) | `1` |\n| <!channel> | |"


def table_of(markdown: str) -> dict[str, Any]:
    (found,) = [block for block in render(markdown).blocks if block["type"] == "table"]
    return found


def test_a_table_is_a_table() -> None:
    found = table_of(TABLE)
    assert [column["align"] for column in found["column_settings"]] == ["left", "right"]
    cells = [[cell["elements"][0]["elements"] for cell in row] for row in found["rows"]]
    assert cells[0][0] == [{"type": "text", "text": "Name", "style": {"bold": True}}]
    assert cells[1][0] == [
        {"type": "text", "text": "Ann", "style": {"bold": True}},
        {"type": "text", "text": " "},
        {"type": "link", "url": "https://a.b", "text": "x"},
    ]
    assert cells[1][1] == [{"type": "text", "text": "1", "style": {"code": True}}]
    # The text of a cell is literal, and an empty one would be refused.
    assert cells[2] == [[{"type": "text", "text": "<!channel>"}], [{"type": "text", "text": " "}]]


def test_text_around_a_table_stays_around_it() -> None:
    shown = render(f"before\n\n{TABLE}\n\nafter")
    assert [block["type"] for block in shown.blocks] == ["markdown", "table", "markdown"]
    assert (shown.blocks[0]["text"], shown.blocks[2]["text"]) == ("before", "after")
    assert "Ann x" in shown.text
    assert block_error(list(shown.blocks)) == ""


def test_a_message_has_one_table_and_further_ones_follow_in_others() -> None:
    two = f"one\n\n{TABLE}\n\ntwo\n\n{TABLE}\n\nend"
    assert not fits(two)
    pieces = split_markdown(two, fits)
    assert [piece.count("Ann") for piece in pieces] == [1, 1]
    assert "".join(pieces).count("end") == 1


def test_a_small_table_does_not_fill_a_message() -> None:
    assert split_markdown(f"{TABLE}\n\n" + "word\n\n" * 50, fits) == [
        f"{TABLE}\n\n" + "word\n\n" * 50
    ]


@pytest.mark.parametrize(
    ("rows", "cell", "most"), [(250, "x", 100), (90, "words " * 50, 100), (99, "x", 100)]
)
def test_long_tables_are_cut_between_rows(rows: int, cell: str, most: int) -> None:
    table = "| h | k |\n|---|---|\n" + "\n".join(f"| r{n} | {cell} |" for n in range(rows))
    seen: list[str] = []
    for piece in split_markdown(table, fits):
        found = table_of(piece)
        assert len(found["rows"]) <= most
        assert block_error(list(render(piece).blocks)) == ""
        texts = [row[0]["elements"][0]["elements"][0]["text"] for row in found["rows"]]
        assert texts[0] == "h"
        seen += texts[1:]
    assert seen == [f"r{n}" for n in range(rows)]


def test_tables_that_no_block_holds_are_drawn() -> None:
    wide = "|" + "a|" * 21 + "\n|" + "-|" * 21 + "\n|" + "b|" * 21
    inside = "> | a |\n> |---|\n> | b |\n\n- item\n\n  | c |\n  |---|\n  | d |"
    for markdown in (wide, inside):
        shown = render(markdown)
        assert {found["type"] for found in shown.blocks} == {"markdown"}
        assert "```" in block(markdown)
        assert fits(markdown)


def test_buttons_are_below_the_text() -> None:
    shown = render(TABLE, (Button(label="Go", token="t"),))
    assert [found["type"] for found in shown.blocks] == ["table", "actions"]
    assert render_plain("x" * 4_000, (Button(label="Go", token="t"),)).blocks == ()


@given(documents)
def test_every_piece_of_any_document_is_one_that_slack_takes(markdown: str) -> None:
    for piece in split_markdown(markdown, fits):
        shown = render(piece, (Button(label="Go", token="t"),))
        assert block_error(list(shown.blocks)) == ""
        assert list(text_findings(shown.text, list(shown.blocks))) == []


def test_a_line_break_in_a_cell_of_a_table_is_one() -> None:
    [table] = render("|x|\n|-|\n|one<br>two|").blocks
    [section] = table["rows"][1][0]["elements"]
    assert "".join(part["text"] for part in section["elements"]) == "one\ntwo"
