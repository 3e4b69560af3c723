"""Telegram's text and entities: properly nested, within the limits, and without mentions."""

import re

import pytest
from hypothesis import given

from bots.telegram.format import FormattedText, fits, render
from bots.text.characters import utf16_length
from bots.text.split_markdown import split_markdown
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents


def formatted(message: FormattedText) -> list[tuple[str, str]]:
    units = message.text.encode("utf-16-le")
    return [
        (
            entity.type,
            units[entity.offset * 2 : (entity.offset + entity.length) * 2].decode("utf-16-le"),
        )
        for entity in message.entities
    ]


def check(message: FormattedText) -> None:
    assert message.text.strip()
    assert len(message.entities) <= 100
    assert not re.search(r"(?<![A-Za-z0-9_])@\w", without_code(message))
    assert "\u2060" not in message.text
    ends: list[int] = []
    for entity in message.entities:
        end = entity.offset + entity.length
        assert entity.length > 0
        assert end <= utf16_length(message.text)
        while ends and ends[-1] <= entity.offset:
            ends.pop()
        assert not ends or end <= ends[-1]
        ends.append(end)


def without_code(message: FormattedText) -> str:
    units = message.text.encode("utf-16-le")
    for entity in message.entities:
        if entity.type in {"code", "pre", "text_link"}:
            start, end = entity.offset * 2, (entity.offset + entity.length) * 2
            units = units[:start] + b" \0" * entity.length + units[end:]
    return units.decode("utf-16-le")


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("# 😀 **x**", "😀 x", [("bold", "😀 x")]),
        ("😀 **a *b***", "😀 a b", [("bold", "a b"), ("italic", "b")]),
        ("~~a~~ `b`", "a b", [("strikethrough", "a"), ("code", "b")]),
        ("**a `b` c**", "a b c", [("bold", "a"), ("code", "b"), ("bold", "c")]),
        ("[`a`](https://x)", "a", [("text_link", "a")]),
        ("[a](ftp://x)", "a (ftp://x)", []),
        ("[a](tg://user?id=1)", "a (tg://user?id=1)", []),
        ("[a](tg://resolve?domain=x)", "a", [("text_link", "a")]),
        ("![p](https://x)", "p", [("text_link", "p")]),
        ("- a\n  - b\n- c", "• a\n  • b\n• c", []),
        ("9. a\n10. b", "9. a\n10. b", []),
        ("> a\n> > b", "a\nb", [("blockquote", "a\nb")]),
        ("```py\n  x\n```", "  x", [("pre", "  x")]),
        (
            "|名|n|\n|-|-:|\n|a|10|",
            "名 |  n\n---+---\na  | 10",
            [("pre", "名 |  n\n---+---\na  | 10")],
        ),
        ("a\n\nb\n\n---", "a\n\nb\n\n———", []),
        ("hi @bob, a@b.c `@x`", "hi @bob, a@b.c @x", [("code", "@bob"), ("code", "@x")]),
        ("@**bob**", "@bob", [("code", "@"), ("bold", "bob")]),
        (
            "*npm i @types/node!*",
            "npm i @types/node!",
            [("italic", "npm i"), ("code", "@types/node"), ("italic", "!")],
        ),
        ("[@bob](https://x)", "@bob", [("text_link", "@bob")]),
        (
            "https://medium.com/@bob/_a_",
            "https://medium.com/@bob/_a_",
            [("text_link", "https://medium.com/@bob/_a_")],
        ),
        ("$a_1*b_1 + a_2*b_2$ https://a.b/_c_", "$a_1*b_1 + a_2*b_2$ https://a.b/_c_", []),
        ("\\[\na_1*b\n\\]", "\\[\na_1*b\n\\]", [("pre", "\\[\na_1*b\n\\]")]),
        ("- [x] a\n- [ ] b\n\n1. [ ] c", "☑ a\n☐ b\n\n1. ☐ c", []),
        ("it is ||*so*||", "it is so", [("italic", "so"), ("spoiler", "so")]),
        (
            "<details><summary>More</summary>\nx\n</details>",
            "More\nx",
            [("expandable_blockquote", "More\nx"), ("bold", "More")],
        ),
        ("H<sub>2</sub>O x<sup>ab</sup>", "H₂O x^ab", []),
        ("", "…", []),
        ("\u200b", "…", []),
    ],
)
def test_each_markdown_construct_is_converted(
    markdown: str, text: str, entities: list[tuple[str, str]]
) -> None:
    message = render(markdown)
    assert message.text == text
    assert formatted(message) == entities


def test_pre_has_its_language_and_links_their_address() -> None:
    assert render("```py\nx\n```").entities[0].language == "py"
    assert render("[a](https://x/y)").entities[0].url == "https://x/y"


def test_excess_formatting_is_dropped_links_last() -> None:
    message = render("`@bob` " * 70 + "**b** " * 80 + "[x](https://y) " * 20)
    check(message)
    kinds = [entity.type for entity in message.entities]
    assert (kinds.count("code"), kinds.count("text_link"), kinds.count("bold")) == (70, 20, 10)


def test_names_beyond_the_entities_of_a_message_are_disguised() -> None:
    message = render("`@bob` @ann " * 60)
    assert message.entities == ()
    assert message.text.count("@\u2060") == 120


def test_texts_above_telegrams_limits_do_not_fit() -> None:
    assert fits("x" * 4_096)
    assert not fits("x" * 4_097)
    assert not fits("😀" * 2_049)
    assert not fits("**a** b " * 101)


def test_every_prefix_renders() -> None:
    for end in range(0, len(SAMPLE), 2):
        check(render(SAMPLE[:end]))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_become_valid_messages(name: str) -> None:
    check(render(HOSTILE[name][:6_000]))


def test_pieces_of_a_long_text_fit() -> None:
    pieces = split_markdown(SAMPLE * 30, fits)
    assert len(pieces) > 2
    for piece in pieces:
        message = render(piece)
        check(message)
        assert utf16_length(message.text) <= 4_096


@given(documents)
def test_any_document_mentions_nobody_and_fits_in_pieces(markdown: str) -> None:
    check(render(markdown))
