"""Split messages fit, render on their own, and lose nothing."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.text.code_file import CodeFile, code_file
from bots.text.markdown import parse
from bots.text.measure import Fits
from bots.text.split_markdown import split_markdown
from bots.text.tree import CodeBlock, Table, walk
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents, prose


def within(limit: int) -> Fits:
    return lambda piece: len(piece) <= limit


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def test_a_short_text_is_one_piece() -> None:
    assert split_markdown("", within(10)) == [""]
    assert split_markdown("a\n\nb", within(10)) == ["a\n\nb"]
    assert split_markdown("\n" * 50, within(10)) == [""]


@pytest.mark.parametrize(
    ("markdown", "limit", "pieces"),
    [
        ("one two\n\nthree four", 10, ["one two", "three four"]),
        ("One. Two three.", 11, ["One.", "Two three."]),
        ("- aa\n- bb\n- cc", 9, ["- aa\n- bb", "- cc"]),
        ("9. aa\n1. bb\n1. cc", 7, ["9. aa", "10. bb", "11. cc"]),
        ("```py\na\nb\n```", 12, ["```py\na\n```", "```py\nb\n```"]),
        ("|h|\n|-|\n|a|\n|b|", 12, ["|h|\n|-|\n|a|", "|h|\n|-|\n|b|"]),
        ("> aaaa\n> bbbb", 7, ["> aaaa", "> bbbb"]),
        ("text here\n\n# Head\n\nmore text", 20, ["text here", "# Head\n\nmore text"]),
        ("aaaaaa - bbbb", 7, ["aaaaaa", "\\- bbbb"]),
        ("**aaaa bbbb**", 9, ["**aaaa**", "**bbbb**"]),
    ],
)
def test_texts_are_cut_at_these_places(markdown: str, limit: int, pieces: list[str]) -> None:
    assert split_markdown(markdown, within(limit)) == pieces


def test_code_keeps_its_language_and_lines() -> None:
    lines = [f"line {number}" for number in range(500)]
    pieces = split_markdown("```python\n" + "\n".join(lines) + "\n```", within(400))
    found = []
    for piece in pieces:
        (block,) = parse(piece)
        assert isinstance(block, CodeBlock)
        assert block.language == "python"
        found += block.text.split("\n")
    assert found == lines


def test_tables_are_never_cut_inside_a_row() -> None:
    rows = [f"| name {number} | {number} |" for number in range(200)]
    pieces = split_markdown("\n".join(["| n | v |", "|---|---|", *rows]), within(500))
    tables = [block for piece in pieces for block in parse(piece)]
    assert sum(len(table.rows) for table in tables if isinstance(table, Table)) == 200
    assert len(tables) == len(pieces) > 1


def test_a_long_item_is_cut_between_its_blocks() -> None:
    item = (
        "- start\n\n  ```py\n" + "\n".join(f"  x{n} = {n}" for n in range(100)) + "\n  ```\n\n  end"
    )
    pieces = split_markdown(item, within(300))
    codes = [b for piece in pieces for b in walk(parse(piece)) if isinstance(b, CodeBlock)]
    assert "\n".join(code.text for code in codes) == "\n".join(f"x{n} = {n}" for n in range(100))
    assert pieces[0].startswith("- start")
    assert pieces[-1].endswith("end")


def test_graphemes_and_links_stay_whole() -> None:
    pieces = split_markdown("👩\u200d🚀" * 50, within(10))
    assert all(not piece.startswith("\u200d") and not piece.endswith("\u200d") for piece in pieces)
    linked = split_markdown("words before it [a label](https://example.org/path) after", within(50))
    assert any("[a label](https://example.org/path)" in piece for piece in linked)


@pytest.mark.parametrize("first", ["# Head", "Here it is:", "1."])
@pytest.mark.parametrize("size", [400, 1_200, 1_900])
def test_a_short_beginning_is_no_message_by_itself(first: str, size: int) -> None:
    text = "\n\n".join([first, *["x" * size] * 20])
    pieces = split_markdown(text, within(4_000))
    assert pieces[0].startswith(f"{first}\n\n{'x' * size}")


@pytest.mark.parametrize(
    "block",
    [
        "word " * 2_000,
        "\n".join(f"- item {number}" for number in range(900)),
        "\n".join(["```py", *["x = 1"] * 1_500, "```"]),
        "\n".join(["|a|b|", "|-|-|", *["|one|two|"] * 900]),
    ],
)
def test_a_heading_stays_with_a_text_that_is_cut(block: str) -> None:
    pieces = split_markdown(f"Intro.\n\n## Head\n\n### Below\n\n{block}\n\nEnd.", within(4_000))
    assert pieces[0] == "Intro."
    assert pieces[1].startswith("## Head\n\n### Below\n\n")
    assert len(pieces[1]) > 3_000
    assert not any(piece.startswith("#") for piece in pieces[2:])
    assert all(len(piece) <= 4_000 for piece in pieces)


def test_the_number_of_questions_grows_with_the_pieces() -> None:
    calls = 0

    def fits(piece: str) -> bool:
        nonlocal calls
        calls += 1
        return len(piece) <= 4_000

    pieces = split_markdown("Some words and **more of them** here. " * 2_600, fits)
    assert len(pieces) < 29
    assert calls < 14 * len(pieces)


HOSTILE_CHARS = 78_000 if os.environ.get("PARLEY_TEST_LONG") == "1" else 20_000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_split_within_the_limit(name: str) -> None:
    pieces = split_markdown(HOSTILE[name][:HOSTILE_CHARS], within(4_000))
    assert all(len(piece) <= 4_000 for piece in pieces)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20, 60, 200])
def test_pieces_are_within_any_limit(limit: int) -> None:
    pieces = split_markdown(SAMPLE, within(limit))
    assert all(len(piece) <= limit for piece in pieces)
    words = re.findall(r"[a-z]{3,}", SAMPLE)
    if limit >= 60:
        assert all(any(word in piece for piece in pieces) for word in words)


@given(documents, st.integers(min_value=1, max_value=120))
def test_every_piece_of_any_document_fits(markdown: str, limit: int) -> None:
    pieces = split_markdown(markdown, within(limit))
    assert pieces
    assert all(len(piece) <= limit for piece in pieces)
    joined = letters("".join(pieces))
    for word in set(re.findall(r"[a-z]{8}", markdown)):
        assert word in joined or "|" in markdown or "```" in markdown or limit < 40


@given(prose, st.integers(min_value=3, max_value=120))
def test_prose_loses_nothing(markdown: str, limit: int) -> None:
    assert letters("".join(split_markdown(markdown, within(limit)))) == letters(markdown)


def test_code_that_goes_as_a_file_stays_whole() -> None:
    code = "```py\n" + "x = 1\n" * 50 + "```"
    text = f"before\n\n{code}\n\nafter\n\n```\nshort\n```"
    pieces = split_markdown(text, lambda piece: len(piece) <= 60, as_file=lambda _: True)
    assert pieces == ["before", code, "after\n\n```\nshort\n```"]
    assert code_file(pieces[1]) == CodeFile("code.py", "\n".join(["x = 1"] * 50))


def test_code_that_is_no_file_is_cut() -> None:
    code = "```py\n" + "x = 1\n" * 50 + "```"
    fits = within(60)
    assert split_markdown(code, fits, as_file=lambda _: False) == split_markdown(code, fits)
    inside = "- item\n\n  " + code.replace("\n", "\n  ")
    assert all(map(fits, split_markdown(inside, fits, as_file=lambda _: True)))


def test_code_that_never_ends_is_a_file_too() -> None:
    assert split_markdown(
        "```py\n" + "y\n" * 60, lambda p: len(p) <= 60, as_file=lambda _: True
    ) == ["```py\n" + "y\n" * 59 + "y"]


@given(documents)
def test_nothing_is_lost_when_code_goes_as_files(markdown: str) -> None:
    fits = within(120)
    whole = split_markdown(markdown, fits, as_file=lambda _: True)
    cut = split_markdown(markdown, fits)
    words = [sorted(re.findall(r"[a-zA-Z]{3,}", " ".join(pieces))) for pieces in (whole, cut)]
    # When a fence is cut, the second part repeats the language.
    assert set(words[0]) == set(words[1])
