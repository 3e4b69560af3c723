"""People's formatting as Markdown: entities, and the blocks of rich messages."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.telegram.entity_markdown import parse_text
from bots.telegram.identity import NOBODY, TelegramIdentity
from bots.telegram.rich_markdown import RichReader
from gateway.playground.telegram.chats import Wire, units
from gateway.playground.telegram.checks import specification, type_violations
from tests.bots.test_telegram_inbound import ALICE, BOT, PLAIN, accepted

ME = TelegramIdentity(user_id=700700, username="Parley_Bot")
AT = 1_790_000_000
FILE = {"file_id": "f", "file_unique_id": "u"}
MOVING = FILE | {"width": 9, "height": 9, "duration": 3}


def entity(text: str, part: str, kind: str, **fields: Wire) -> dict[str, Any]:
    """Return the entity that marks the first occurrence of a part."""
    at = text.index(part)
    return {"type": kind, "offset": units(text[:at]), "length": units(part), **fields}


def marked(text: str, *marks: tuple[Any, ...]) -> str:
    """Return a text as the adapter reads it, with entities given as (part, type, fields)."""
    entities = [
        entity(text, part, kind, **(fields[0] if fields else {})) for part, kind, *fields in marks
    ]
    return parse_text(text, entities, NOBODY).text


TEXT = "see Monday now"
ENTITY_TYPES: list[tuple[str, dict[str, Any], str]] = [
    ("mention", {}, TEXT),
    ("hashtag", {}, TEXT),
    ("cashtag", {}, TEXT),
    ("bot_command", {}, TEXT),
    ("url", {}, TEXT),
    ("email", {}, TEXT),
    ("phone_number", {}, TEXT),
    ("bold", {}, "see **Monday** now"),
    ("italic", {}, "see *Monday* now"),
    ("underline", {}, TEXT),
    ("strikethrough", {}, "see ~~Monday~~ now"),
    ("spoiler", {}, "see ||Monday|| now"),
    ("blockquote", {}, "see \n> Monday\n\n now"),
    ("expandable_blockquote", {}, "see \n> Monday\n\n now"),
    ("code", {}, "see `Monday` now"),
    ("pre", {}, "see \n```\nMonday\n```\n now"),
    ("pre", {"language": "python"}, "see \n```python\nMonday\n```\n now"),
    ("text_link", {"url": "https://a.example"}, "see [Monday](https://a.example) now"),
    ("text_mention", {"user": ALICE}, TEXT),
    ("custom_emoji", {"custom_emoji_id": "5"}, TEXT),
    ("date_time", {"unix_time": AT, "date_time_format": "wDT"}, "see Monday (2026-09-21 14:13 UTC) now"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "shown"), ENTITY_TYPES)
def test_every_type_of_entity_becomes_markdown(
    kind: str, fields: dict[str, Any], shown: str
) -> None:
    assert type_violations("MessageEntity", entity(TEXT, "Monday", kind, **fields)) == []
    assert marked(TEXT, ("Monday", kind, fields)) == shown


@pytest.mark.parametrize(
    ("read", "shown"),
    [
        (marked("Monday Tuesday", ("Monday", "strikethrough")), "~~Monday~~ Tuesday"),
        (marked("a bold word", ("bold ", "bold")), "a **bold** word"),
        (marked("ab", ("a", "bold"), ("b", "bold")), "**ab**"),
        (marked("ab c", ("ab c", "bold"), ("b", "italic")), "**a*b* c**"),
        (marked("abcd", ("abc", "bold"), ("bcd", "italic")), "**a*bc***_d_".replace("_", "*")),
        (marked("x", ("x", "bold"), ("x", "italic"), ("x", "text_link", {"url": "https://a.b"})),
         "[***x***](https://a.b)"),
        (marked("one\n\ntwo", ("one\n\ntwo", "bold")), "**one**\n\n**two**"),
        (marked("a `b", ("a `b", "code")), "``a `b``"),
        (marked("`", ("`", "code")), "`` ` ``"),
        (marked("print('```')\n", ("print('```')\n", "pre", {"language": "python"})),
         "````python\nprint('```')\n````"),
        (marked("run\nls -l\nnow", ("ls -l", "pre", {"language": "ba`\nsh x"})), "run\n```bashx\nls -l\n```\nnow"),
        (marked("x *y* _z_ [a](b) `c`"), "x *y* _z_ [a](b) `c`"),
        (marked("a*b *c", ("a*b *c", "code"), ("b", "bold"), ("*c", "mention")), "`a*b *c`"),
        (marked("a code b", ("a code b", "bold"), ("code", "code")), "**a** `code` **b**"),
        (marked("code then", ("code", "code"), ("ode then", "bold")), "`code` **then**"),
        (marked("he said\nyes\nno\nI", ("yes\nno", "blockquote"), ("no", "bold")), "he said\n> yes\n> **no**\n\nI"),
        (marked("yes\nls\nI", ("yes\nls", "expandable_blockquote"), ("ls", "pre")), "> yes\n> ```\n> ls\n> ```\n\nI"),
        (marked("a\nb", ("a\n", "blockquote"), ("a\nb", "italic")), "> *a*\n>\n\n*b*"),
        (marked("😀 one 👩‍🚀 two", ("two", "bold"), ("👩‍🚀", "custom_emoji")), "😀 one 👩‍🚀 **two**"),
        (marked("see (x)", ("x", "text_link", {"url": "https://a.b/c_(d)"})), "see ([x](<https://a.b/c_(d)>))"),
        (marked("see  x ", (" x ", "text_link", {"url": "https://a.b"})), "see  [x](https://a.b)"),
        (marked("soon", ("soon", "date_time", {"unix_time": 10**18})), "soon"),
    ],
)  # fmt: skip
def test_formatting_nests_and_changes_no_letter(read: str, shown: str) -> None:
    assert read == shown


@pytest.mark.parametrize("at", [1, 2])
def test_an_entity_that_cuts_a_character_in_two_is_dropped(at: int) -> None:
    cut = {"type": "bold", "offset": at, "length": 1}
    assert parse_text("a😀b", [cut], NOBODY).text == "a😀b"


_LETTERS = st.text(st.sampled_from("ab 😀\n中é"), max_size=30)
_SPANS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from([kind for kind, *_ in ENTITY_TYPES if kind != "date_time"]),
            "offset": st.integers(0, 30),
            "length": st.integers(1, 30),
        }
    ),
    max_size=6,
)


@given(_LETTERS, _SPANS)
def test_whatever_is_marked_no_letter_is_lost_or_added(
    text: str, entities: list[dict[str, Any]]
) -> None:
    read = parse_text(text, entities, ME)
    for shown in (read.text, read.plain):
        assert re.sub(r"[*~|`>\s]", "", shown) == re.sub(r"\s", "", text)


@pytest.mark.parametrize(
    ("text", "marks", "shown", "addressed"),
    [
        ("@Parley_Bot hello", [("@Parley_Bot hello", "bold")], "**hello**", True),
        ("@Parley_Bot hello", [("@Parley_Bot", "bold")], "hello", True),
        ("see @Parley_Bot there", [("@Parley_Bot", "italic")], "see there", True),
        ("run @Parley_Bot", [("run @Parley_Bot", "code")], "run @Parley_Bot", False),
        ("/new@Parley_Bot", [("/new@Parley_Bot", "pre")], "/new@Parley_Bot", False),
        ("/help me now", [("/help me", "bold")], "/help me now", True),
        ("/help run ls", [("ls", "code")], "/help run ls", True),
        ("@Parley_Bot /help x", [("/help x", "spoiler")], "/help x", True),
    ],
)
def test_mentions_and_commands_work_inside_formatting(
    text: str, marks: list[tuple[str, str]], shown: str, addressed: bool
) -> None:
    entities = [entity(text, part, kind) for part, kind in marks]
    for part, kind in (("@Parley_Bot", "mention"), ("/help", "bot_command")):
        if part in text and not text.startswith("/new"):
            entities.append(entity(text, part, kind))
    inbound = accepted(chat=PLAIN, text=text, entities=entities)
    plain = inbound.text.strip("`\n")
    assert (plain, inbound.is_addressed) == (shown, addressed)


def test_a_command_of_others_keeps_its_formatting() -> None:
    """A skill's name as a command is a message to the agent."""
    text = "/review this code"
    entities = [entity(text, "/review", "bot_command"), entity(text, "code", "code")]
    assert accepted(text=text, entities=entities).text == "/review this `code`"
    bold = [entity(text, "/review", "bot_command"), entity(text, text, "bold")]
    assert accepted(text=text, entities=bold).text == "/review **this code**"


# Rich messages.

BLOCKS: list[tuple[dict[str, Any], str]] = [
    ({"type": "paragraph", "text": "a *b*"}, "a *b*"),
    ({"type": "heading", "text": "Plan\nB", "size": 3}, "### Plan B"),
    ({"type": "pre", "text": ["a", {"type": "bold", "text": "b"}], "language": "sh"}, "```sh\nab\n```"),
    ({"type": "footer", "text": "end"}, "end"),
    ({"type": "divider"}, "---"),
    ({"type": "mathematical_expression", "expression": "x^2"}, "$$\nx^2\n$$"),
    ({"type": "anchor", "name": "a"}, ""),
    (
        {"type": "list", "items": [
            {"label": "•", "blocks": [{"type": "paragraph", "text": "tea"}]},
            {"label": "2.", "value": 2, "blocks": [{"type": "paragraph", "text": "milk"}]},
            {"label": "•", "has_checkbox": True, "is_checked": True, "blocks": [
                {"type": "paragraph", "text": "done"}, {"type": "list", "items": [
                    {"label": "•", "has_checkbox": True, "blocks": [{"type": "paragraph", "text": "open"}]}]}]},
        ]},
        "- tea\n2. milk\n- [x] done\n  - [ ] open",
    ),
    ({"type": "blockquote", "blocks": [{"type": "paragraph", "text": "a\nb"}], "credit": "Ann"}, "> a\n> b\n> — Ann"),
    ({"type": "expandable_blockquote", "text": "long", "credit": "Ann"}, "> long\n> — Ann"),
    ({"type": "pullquote", "text": "short"}, "> short"),
    ({"type": "collage", "blocks": [{"type": "photo", "photo": [FILE | {"width": 1, "height": 1}]}],
      "caption": {"text": "us", "credit": "Bob"}}, "[File: photo_u.jpg]\nus\n— Bob"),
    ({"type": "slideshow", "blocks": [{"type": "video", "video": MOVING}]}, "[File: video.mp4]"),
    (
        {"type": "table", "caption": "Prices", "cells": [
            [{"text": "What", "is_header": True, "align": "left", "valign": "top"},
             {"text": "How\nmuch", "align": "left", "valign": "top"}],
            [{"text": "a|b", "align": "left", "valign": "top"}]]},
        "Prices\n| What | How much |\n| --- | --- |\n| a\\|b |  |",
    ),
    ({"type": "details", "summary": "More", "blocks": [{"type": "paragraph", "text": "a"}]}, "**More**\n\na"),
    ({"type": "map", "location": {"latitude": 1.5, "longitude": 2.5}, "zoom": 14, "width": 9, "height": 9,
      "caption": {"text": "here"}}, "[Location: 1.5, 2.5]\nhere"),
    ({"type": "animation", "animation": MOVING}, "[File: animation.mp4]"),
    ({"type": "audio", "audio": FILE | {"duration": 3}, "caption": {"text": "song"}}, "[File: audio.mp3]\nsong"),
    ({"type": "photo", "photo": [FILE | {"width": 1, "height": 1}]}, "[File: photo_u.jpg]"),
    ({"type": "video", "video": MOVING}, "[File: video.mp4]"),
    ({"type": "voice_note", "voice_note": FILE | {"duration": 3}}, "[File: voice.ogg]"),
    ({"type": "document", "document": FILE | {"file_name": "a.pdf"}}, "[File: a.pdf]"),
    ({"type": "thinking", "text": "..."}, ""),
    ({"type": "buttons", "buttons": [{"text": "Open", "url": "https://a.b"}, {"text": "Go", "callback_data": "x"}]},
     "[Open](https://a.b) [Button: Go]"),
]  # fmt: skip

TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"type": "bold", "text": "x"}, "**x**"),
    ({"type": "italic", "text": {"type": "bold", "text": "x"}}, "***x***"),
    ({"type": "underline", "text": "x"}, "x"),
    ({"type": "strikethrough", "text": "x"}, "~~x~~"),
    ({"type": "spoiler", "text": "x"}, "||x||"),
    ({"type": "date_time", "text": "soon", "unix_time": AT, "date_time_format": "t"}, "soon (2026-09-21 14:13 UTC)"),
    ({"type": "text_mention", "text": "Alice", "user": ALICE}, "Alice"),
    ({"type": "subscript", "text": "2"}, "<sub>2</sub>"),
    ({"type": "superscript", "text": "2"}, "<sup>2</sup>"),
    ({"type": "marked", "text": "x"}, "==x=="),
    ({"type": "code", "text": "a`b"}, "``a`b``"),
    ({"type": "custom_emoji", "custom_emoji_id": "5", "alternative_text": "👍"}, "👍"),
    ({"type": "mathematical_expression", "expression": "x_1"}, "$x_1$"),
    ({"type": "url", "text": "docs", "url": "https://a.b"}, "[docs](https://a.b)"),
    ({"type": "email_address", "text": "a@b.de", "email_address": "a@b.de"}, "a@b.de"),
    ({"type": "phone_number", "text": "+491", "phone_number": "+491"}, "+491"),
    ({"type": "bank_card_number", "text": "4242", "bank_card_number": "4242"}, "4242"),
    ({"type": "mention", "text": "@bob", "username": "bob"}, "@bob"),
    ({"type": "hashtag", "text": "#x", "hashtag": "x"}, "#x"),
    ({"type": "cashtag", "text": "$X", "cashtag": "X"}, "$X"),
    ({"type": "bot_command", "text": "/x", "bot_command": "x"}, "/x"),
    ({"type": "anchor", "name": "a"}, ""),
    ({"type": "anchor_link", "text": "up", "anchor_name": ""}, "up"),
    ({"type": "reference", "text": "Ann 2020", "name": "1"}, "Ann 2020"),
    ({"type": "reference_link", "text": "[1]", "reference_name": "1"}, "[1]"),
    ({"type": "button", "button": {"text": "Open", "url": "https://a.b"}}, "[Open](https://a.b)"),
]  # fmt: skip


def types_of(union: str) -> set[str]:
    return {name for name in specification()["types"][union]["subtypes"] if name.startswith("Rich")}


def matching(union: str, value: Wire) -> list[str]:
    return [name for name in types_of(union) if type_violations(name, value) == []]


def test_every_rich_block_and_text_of_the_newest_bot_api_has_a_row() -> None:
    for union, rows in (("RichBlock", BLOCKS), ("RichText", TEXTS)):
        kinds = [value["type"] for value, _ in rows]
        assert len(kinds) == len(set(kinds)) == len(types_of(union))
        for value, _ in rows:
            assert matching(union, value), value


@pytest.mark.parametrize(("block", "shown"), BLOCKS, ids=lambda one: str(one)[:40])
def test_blocks_of_rich_messages(block: dict[str, Any], shown: str) -> None:
    reader = RichReader(NOBODY)
    assert reader.read({"blocks": [block]}) == shown
    assert [f"[File: {file.name}]" in shown for file in reader.files] == [True] * len(reader.files)


@pytest.mark.parametrize(("text", "shown"), TEXTS, ids=lambda one: str(one)[:40])
def test_rich_messages_become_markdown(text: dict[str, Any], shown: str) -> None:
    blocks = [{"type": "paragraph", "text": ["a ", text, " b"]}]
    assert RichReader(NOBODY).read({"blocks": blocks}) == f"a {shown} b"


def test_a_rich_message_may_name_the_bot_and_bring_files() -> None:
    naming: dict[str, Any] = {"type": "mention", "text": "@Parley_Bot", "username": "Parley_Bot"}
    blocks = [
        {"type": "paragraph", "text": [naming, " look"]},
        {"type": "photo", "photo": [FILE | {"width": 1, "height": 1}]},
    ]
    inbound = accepted(chat=PLAIN, rich_message={"blocks": blocks})
    assert (inbound.text, inbound.is_addressed) == ("look\n\n[File: photo_u.jpg]", True)
    assert [file.ref for file in inbound.attachments] == ["f"]
    person = naming | {"type": "text_mention", "user": BOT}
    by_id = accepted(chat=PLAIN, rich_message={"blocks": [{"type": "footer", "text": person}]})
    assert (by_id.text, by_id.is_addressed) == ("/help", True)
