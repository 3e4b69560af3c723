"""Feishu's Markdown: tags have no effect, tables are limited, and unfinished text renders cleanly."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.feishu.format import fits, render
from bots.text.split_markdown import split_markdown
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents

TABLE = "|a|b|\n|-|-|\n|1|2|\n\n"
LIVE_TOKENS = [
    "<at id=all></at>", "<at id='all'>", '<AT user_id="ou_1">x</at>', "< at id=all>", "@_all", "@_user_1",
    "<person id='ou_1'></person>", "&lt;at id=all&gt;", "`<at id=all>`", "<at\tid=all>", "@\\_all",
]  # fmt: skip
LIVE = re.compile(r"<(?:at|person|font)\b|@_all|@_user", re.IGNORECASE)


@pytest.mark.parametrize(
    ("markdown", "rendered"),
    [
        ("# A\n\n## B\n\n###### C", "#### A\n\n##### B\n\n##### C"),
        ("**a** *b* ~~c~~ `d`", "**a** *b* ~~c~~ `d`"),
        ("<at id=all></at>", "&lt;at id=all>&lt;/at>"),
        ("&lt;at id=all&gt;", "&lt;at id=all&gt;"),
        ("&amp;lt;at>", "&amp;lt;at>"),
        ("a & b", "a & b"),
        ("\\*a\\*", "&#42;a&#42;"),
        ("![a](img_v3_x-1)", "![a](img_v3_x-1)"),
        ("![a](https://x/y.png)", "[a](https://x/y.png)"),
        ("[a](mailto:x@y.z)", "a (mailto:x@y.z)"),
        ("[a](https://x/(y))", "[a](https://x/%28y%29)"),
        ("@_all", "&#64;&#95;all"),
        ("![](\n\nx!", "&#33;[&#93;(\n\nx!"),
        ("x!![a](https://b)", "x&#33;[a](https://b)"),
        ("`<at id=all>` `<b>`", "&lt;at id=all> `<b>`"),
        ("```\n  <at id=all>\n```", "&nbsp;&nbsp;&lt;at id=all>"),
        ("$a_1*b_1 + a_2*b_2$", "$a_1&#42;b_1 + a_2&#42;b_2$"),
        ("\\[x\\] `a` __init__", "&#92;[x&#92;] `a` &#95;&#95;init&#95;&#95;"),
        ("- [x] a\n- [ ] b", "- ☑ a\n- ☐ b"),
        ("see https://a.b/_c_/d", "see [https://a.b/&#95;c&#95;/d](https://a.b/_c_/d)"),
        ("[^1]: note", "[^1&#93;: note"),
        ("<details><summary>More</summary>\n\nx\n</details>", "**More**\n\nx"),
        ("- a\n  ```py\n  x\n  ```", "- a\n```py\nx\n```"),
        ("", ""),
    ],
)
def test_each_markdown_construct_is_converted(markdown: str, rendered: str) -> None:
    assert render(markdown) == rendered


def test_the_fourth_table_is_code() -> None:
    shown = render(TABLE * 5)
    assert shown.count("```") == 4
    assert shown.count("| 1 | 2 |") == 5
    assert fits(TABLE * 3)
    assert not fits(TABLE * 4)


def test_partial_text_is_closed() -> None:
    assert render("**a", partial=True) == "**a**"
    assert render("```py\nx", partial=True) == "```py\nx\n```"
    assert render("see [a](http", partial=True) == "see a"


def test_every_prefix_renders() -> None:
    for end in range(0, len(SAMPLE), 2):
        assert not LIVE.search(render(SAMPLE[:end], partial=True))


def test_bytes_are_counted_as_they_are_sent() -> None:
    assert fits("中" * 9_000)
    assert not fits("中" * 9_400)
    assert not fits('"' * 10_000)
    for piece in split_markdown('中"\\' * 7_000, fits):
        inner = json.dumps(render(piece), ensure_ascii=False)
        assert len(json.dumps(inner, ensure_ascii=False).encode()) <= 28_000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_mention_nobody(name: str) -> None:
    assert not LIVE.search(render(HOSTILE[name][:6_000], partial=True))


@given(documents)
def test_any_document_mentions_nobody_and_fits_in_pieces(markdown: str) -> None:
    assert not LIVE.search(render(markdown))
    assert all(fits(piece) for piece in split_markdown(markdown, fits))


@given(documents, st.sampled_from(LIVE_TOKENS), st.integers(0, 2000), st.integers(0, 2000))
def test_no_token_of_the_model_pings_anybody(
    markdown: str, token: str, where: int, end: int
) -> None:
    """This holds at any place in any document, whether whole or cut anywhere."""
    place = where % (len(markdown) + 1)
    mined = markdown[:place] + token + markdown[place:]
    assert not LIVE.search(render(mined))
    assert not LIVE.search(render(mined[: end % (len(mined) + 1)], partial=True))
    for piece in split_markdown(mined, fits):
        assert not LIVE.search(render(piece))


def test_a_line_break_in_a_cell_is_a_separator() -> None:
    assert "| one / two | b |" in render("|x|y|\n|-|-|\n|one<br>two|b|")
