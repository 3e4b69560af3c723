"""Rich messages: the blocks that Markdown becomes, and servers that do not support them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given

from bots.config import TelegramConfig
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.format import render
from bots.telegram.rich_blocks import MAX_BLOCKS, rich_blocks, rich_message
from bus.errors import DeliveryError
from bus.messages import Button, ReplyTarget
from gateway.playground.telegram.rich import checked_blocks, names_in, words_of
from gateway.playground.telegram.server import TelegramServer
from tests.bots.markdown_samples import HOSTILE, SAMPLE, documents
from tests.bots.telegram_rig import COMMANDS, FAST, config_for

GROUP = -1001234567890
ALICE = ReplyTarget(chat="1001", reply_to="1")
TABLE = "# Plan\n\n| a | b |\n|---|--:|\n| 1 | **2** |\n\nSee `x`."


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.dm("hello")
        server.mention(GROUP, "hello")
        yield server
        assert server.violations == []


def adapter_for(telegram: TelegramServer) -> TelegramAdapter:
    config = config_for(telegram).model_copy(update={"rich_messages": "auto"})
    return TelegramAdapter(config, COMMANDS, timeouts=FAST)


def test_blocks_say_what_text_can_only_imitate() -> None:
    assert rich_blocks(TABLE) == [
        {"type": "heading", "text": "Plan", "size": 1},
        {
            "type": "table",
            "is_bordered": True,
            "cells": [
                [
                    {"text": "a", "align": "left", "valign": "middle", "is_header": True},
                    {"text": "b", "align": "right", "valign": "middle", "is_header": True},
                ],
                [
                    {"text": "1", "align": "left", "valign": "middle"},
                    {
                        "text": {"type": "bold", "text": "2"},
                        "align": "right",
                        "valign": "middle",
                    },
                ],
            ],
        },
        {"type": "paragraph", "text": ["See ", {"type": "code", "text": "x"}, "."]},
    ]


def test_lists_nest_and_keep_their_numbers() -> None:
    blocks = rich_blocks("3. three\n   - inner\n4. four")
    assert blocks is not None
    (listing,) = blocks
    first, second = listing["items"]
    assert (first["value"], second["value"], first["type"]) == (3, 4, "1")
    assert first["blocks"][1]["type"] == "list"
    assert "value" not in first["blocks"][1]["items"][0]


@pytest.mark.parametrize(
    "markdown", ["", "plain", "**bold** `code`", "```py\nx\n```", "> quoted", "a\n\nb"]
)
def test_texts_that_classic_messages_can_show_stay_classic(markdown: str) -> None:
    assert rich_blocks(markdown) is None


@pytest.mark.parametrize("link", ["![](https://e.com/a)", "[](https://e.com/a)"])
def test_a_link_without_words_is_shown(link: str) -> None:
    blocks = rich_blocks(f"{TABLE}\n\n{link}")
    assert blocks is not None
    assert blocks[-1]["text"]["url"] == "https://e.com/a"


def test_limits_lead_back_to_classic() -> None:
    assert rich_blocks("- x\n" * (MAX_BLOCKS // 2)) is None
    assert rich_blocks("- x\n" * (MAX_BLOCKS // 2 - 1)) is not None
    wide = "|" + "a|" * 21 + "\n|" + "-|" * 21
    assert rich_blocks(wide) is None
    deep = "".join("  " * level + "- x\n" for level in range(20))
    blocks = rich_blocks(deep)
    assert blocks is None or checked_blocks({"blocks": blocks})


@pytest.mark.parametrize(
    "markdown",
    [
        "# [a](javascript:alert(1)) @alice [b](tg://user?id=1)",
        "- ![x](http://evil.example/?data=1)\n- <tg-button>",
        "# <img src='http://evil.example'> @all",
    ],
)
def test_only_links_are_active_in_rich_messages(markdown: str) -> None:
    blocks = rich_blocks(markdown)
    assert blocks is not None
    assert checked_blocks({"blocks": blocks})
    for url in _urls(blocks):
        assert url.startswith("http://evil.example")  # a link, so nothing loads by itself
    assert names_in(blocks) == []


def test_a_name_is_code_and_no_mention() -> None:
    blocks = rich_blocks(
        "# npm i @types/node\n\n[@bob](https://a.b) https://medium.com/@bob **@**x"
    )
    assert blocks is not None
    assert blocks[0]["text"] == ["npm i ", {"type": "code", "text": "@types/node"}]
    assert names_in(blocks) == []
    assert "\u2060" not in str(blocks)


def test_tasks_formulas_and_details_are_native() -> None:
    assert rich_blocks("- [x] a\n- [ ] b\n- c") == [
        {
            "type": "list",
            "items": [
                {"blocks": [_said("a")], "has_checkbox": True, "is_checked": True},
                {"blocks": [_said("b")], "has_checkbox": True},
                {"blocks": [_said("c")]},
            ],
        }
    ]
    formula = {"type": "mathematical_expression", "expression": "a_1*b"}
    assert rich_blocks("so $a_1*b$, \\(a_1*b\\)") == [
        {"type": "paragraph", "text": ["so ", formula, ", ", formula]}
    ]
    assert rich_blocks("$$\na_1*b\n$$") == [formula]
    assert rich_blocks("H<sub>2</sub>O ||no||") == [
        {
            "type": "paragraph",
            "text": [
                "H",
                {"type": "subscript", "text": "2"},
                "O ",
                {"type": "spoiler", "text": "no"},
            ],
        }
    ]
    assert rich_blocks("<details>\n<summary>More</summary>\n\n- x\n\n</details>") == [
        {
            "type": "details",
            "summary": "More",
            "blocks": [{"type": "list", "items": [{"blocks": [_said("x")]}]}],
        }
    ]


def _said(words: str) -> dict[str, str]:
    return {"type": "paragraph", "text": words}


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# שלום", True),
        ("- [x] מרחבא hello", True),
        ("1. مرحبا", True),
        ("# hello שלום", False),
        ("- 123", False),
    ],
)
def test_text_from_right_to_left_is_marked(markdown: str, expected: bool) -> None:
    message = rich_message(markdown)
    assert message is not None
    assert message.get("is_rtl", False) is expected


def _urls(value: object) -> list[str]:
    if isinstance(value, list):
        return [url for item in value for url in _urls(item)]
    if isinstance(value, dict):
        own = [value["url"]] if "url" in value else []
        return own + [url for item in value.values() for url in _urls(item)]
    return []


def taken(markdown: str) -> None:
    blocks = rich_blocks(markdown)
    assert blocks is None or checked_blocks({"blocks": blocks})


def test_every_prefix_is_taken() -> None:
    for end in range(0, len(SAMPLE), 2):
        taken(SAMPLE[:end])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_taken(name: str) -> None:
    taken(HOSTILE[name][:6_000])


@given(documents)
def test_any_document_is_taken_and_loses_no_word(markdown: str) -> None:
    taken(markdown)
    blocks = rich_blocks(markdown)
    if blocks is not None:
        words = words_of(blocks)
        missing = [
            word for word in render(markdown).text.split() if word.isalnum() and word not in words
        ]
        assert [word for word in missing if word.strip("0123456789.")] == []


async def test_a_table_goes_out_rich_and_words_do_not(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram)
    place = ReplyTarget(chat=str(GROUP), reply_to="1")
    button = Button(label="Again", token="retry:1:0")
    message = await adapter.send_with_buttons(place, TABLE, [button], key="k")
    await adapter.send(place, "only *words*", key="k2")
    table, words = telegram.answers(GROUP)
    assert (table.rich, table.reply_to, words.rich) == (rich_blocks(TABLE), 1, [])
    assert table.markup[0][0]["callback_data"] == "retry:1:0"
    assert words.text == "only words"
    await adapter.edit_message(place, message, "# Other")
    assert (table.rich, table.markup) == (rich_blocks("# Other"), [])
    await adapter.edit_message(place, message, "# Other")
    await adapter.edit_message(place, message, "settled")
    assert (table.text, table.rich) == ("settled", [])


async def test_rich_messages_are_off_unless_wanted(telegram: TelegramServer) -> None:
    await TelegramAdapter(config_for(telegram), COMMANDS, timeouts=FAST).send(ALICE, TABLE, key="k")
    assert telegram.calls("sendRichMessage") == []
    values: list[tuple[object, str]] = [(False, "off"), (True, "auto"), ("off", "off")]
    for written, meant in values:  # YAML reads a bare off as false
        assert TelegramConfig.model_validate({"rich_messages": written}).rich_messages == meant


async def test_a_server_of_the_older_protocol_is_probed_once() -> None:
    async with TelegramServer(classic=True) as telegram:
        telegram.dm("hello")
        adapter = adapter_for(telegram)
        first = await adapter.send(ALICE, TABLE, key="k")
        await adapter.send(ALICE, TABLE, key="k2")
        await adapter.edit_message(ALICE, first, "# Other")
        assert len(telegram.calls("sendRichMessage")) == 1
        assert [answer.text for answer in telegram.answers(1001)] == [
            "Other",
            render(TABLE).text,
        ]


async def test_refused_blocks_go_out_classically_and_after_three_no_more(
    telegram: TelegramServer,
) -> None:
    adapter = adapter_for(telegram)
    telegram.fail("sendRichMessage", times=9, status=400, description="Bad Request: wrong block")
    for _ in range(5):
        await adapter.send(ALICE, TABLE, key="k")
    assert len(telegram.calls("sendRichMessage")) == 3
    assert [answer.text for answer in telegram.answers(1001)] == [render(TABLE).text] * 5


async def test_a_chat_that_refuses_blocks_leaves_others_rich(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram)
    telegram.fail("sendRichMessage", times=3, status=400, description="Bad Request: not here")
    for _ in range(3):
        await adapter.send(ALICE, TABLE, key="k")
    await adapter.send(ReplyTarget(chat=str(GROUP)), TABLE, key="k")
    assert [answer.rich is not None for answer in telegram.answers(GROUP)] == [True]


@pytest.mark.parametrize(
    "how",
    [
        {"drop": "after"},
        {"status": 502},
        {"status": 429, "parameters": {"retry_after": 3}},
        {"status": 403, "description": "Forbidden: bot was blocked by the user"},
        {"status": 400, "description": "Bad Request: chat not found"},
        {"status": 400, "description": "Bad Request: message thread not found"},
        {"status": 200, "body": '{"ok": true, "result": true}'},
    ],
)
async def test_an_error_that_is_not_a_refusal_of_blocks_sends_nothing_twice(
    telegram: TelegramServer, how: dict[str, Any]
) -> None:
    telegram.fail("sendRichMessage", **how)
    with pytest.raises(DeliveryError):
        await adapter_for(telegram).send(ALICE, TABLE, key="k")
    assert telegram.calls("sendMessage") == []


async def test_a_revoked_token_is_not_a_missing_method(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram)
    telegram.revoke()
    with pytest.raises(DeliveryError) as caught:
        await adapter.send(ALICE, TABLE, key="k")
    assert caught.value.retryable
    telegram.revoke(revoked=False)
    await adapter.send(ALICE, TABLE, key="k")
    assert telegram.answers(1001)[0].rich
