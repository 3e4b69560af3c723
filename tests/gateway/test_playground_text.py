"""The text trees that the playground's page shows, for each platform's text formats."""

from typing import Any

import pytest

from gateway.playground.feishu.people import card_nodes
from gateway.playground.recording import MessageNames, differences, plain_text, seen_lines
from gateway.playground.shown import Node, SeenMessage, SeenPlace, markdown_tree
from gateway.playground.slack.people import block_nodes, mrkdwn_nodes
from gateway.playground.telegram.people import entity_nodes, rich_nodes

BOLD = {"type": "bold", "text": "b"}
CELL = {"align": "left", "valign": "top"}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("# T", [["h", {}, "T"]]),
        ("- a\n- b", [["ul", {}, ["li", {}, ["p", {}, "a"]], ["li", {}, ["p", {}, "b"]]]]),
        ("```py\nx < 1\n```", [["pre", {}, "x < 1"]]),
        ("<b>raw</b>", [["p", {}, "<b>raw</b>"]]),
        ("~~x~~ **y**", [["p", {}, ["del", {}, "x"], " ", ["strong", {}, "y"]]]),
        (
            "|a|\n|-|\n|b|",
            [["table", {}, ["tr", {}, ["th", {}, "a"]], ["tr", {}, ["td", {}, "b"]]]],
        ),
        (
            "![alt](https://x.test/a.png)",
            [["p", {}, ["a", {"href": "https://x.test/a.png"}, "alt"]]],
        ),
    ],
)
def test_markdown(text: str, tree: list[Node]) -> None:
    assert markdown_tree(text) == tree


def test_telegram_entities_nest_and_count_utf_16_units() -> None:
    entities = [
        {"type": "bold", "offset": 3, "length": 5},
        {"type": "italic", "offset": 5, "length": 3},
        {"type": "text_link", "offset": 0, "length": 2, "url": "https://x.test"},
    ]
    assert entity_nodes("👋 ab cd", entities) == [
        ["a", {"href": "https://x.test"}, "👋"],
        " ",
        ["strong", {}, "ab", ["em", {}, " cd"]],
    ]


@pytest.mark.parametrize(
    ("block", "node"),
    [
        ({"type": "paragraph", "text": ["a", BOLD]}, ["p", {}, "a", ["strong", {}, "b"]]),
        ({"type": "heading", "text": "t", "size": 1}, ["h", {}, "t"]),
        ({"type": "pre", "text": "x", "language": "py"}, ["pre", {}, "x"]),
        ({"type": "divider"}, ["hr", {}]),
        ({"type": "mathematical_expression", "expression": "x"}, ["code", {}, "x"]),
        (
            {"type": "list", "items": [{"has_checkbox": True, "blocks": []}]},
            ["ul", {}, ["li", {}, "☐ "]],
        ),
        (
            {"type": "details", "summary": "s", "blocks": [{"type": "divider"}]},
            ["details", {}, ["summary", {}, "s"], ["hr", {}]],
        ),
        (
            {"type": "table", "cells": [[{"text": "a", "is_header": True, **CELL}]]},
            ["table", {}, ["tr", {}, ["th", {}, "a"]]],
        ),
        (
            {"type": "blockquote", "blocks": [{"type": "paragraph", "text": "q"}]},
            ["blockquote", {}, ["p", {}, "q"]],
        ),
    ],
)
def test_telegram_rich_messages(block: dict[str, Any], node: Node) -> None:
    assert rich_nodes([block]) == [node]


def test_slack_mrkdwn() -> None:
    assert mrkdwn_nodes("_a_ ~b~ `*c*` &lt;d&gt; <@U0PARLEY>") == [
        ["em", {}, "a"], " ", ["del", {}, "b"], " ", ["code", {}, "*c*"], " <d> ", ["mark", {}, "@Parley"],
    ]  # fmt: skip


RICH = {
    "type": "rich_text_section",
    "elements": [{"type": "text", "text": "a", "style": {"bold": True}}],
}


@pytest.mark.parametrize(
    ("block", "tree"),
    [
        ({"type": "markdown", "text": "*a*"}, [["p", {}, ["em", {}, "a"]]]),
        ({"type": "section", "text": {"type": "mrkdwn", "text": "*a*"}}, [["p", {}, ["strong", {}, "a"]]]),
        ({"type": "divider"}, [["hr", {}]]),
        ({"type": "actions", "elements": []}, []),
        ({"type": "rich_text", "elements": [RICH]}, [["p", {}, ["strong", {}, "a"]]]),
        (
            {"type": "rich_text", "elements": [{"type": "rich_text_list", "style": "ordered", "elements": [RICH]}]},
            [["ol", {}, ["li", {}, ["strong", {}, "a"]]]],
        ),
        (
            {"type": "table", "rows": [[{"type": "raw_text", "text": "a"}]]},
            [["table", {}, ["tr", {}, ["td", {}, "a"]]]],
        ),
    ],
)  # fmt: skip
def test_slack_blocks(block: dict[str, Any], tree: list[Node]) -> None:
    assert block_nodes(block) == tree


@pytest.mark.parametrize(
    ("element", "tree"),
    [
        ({"tag": "markdown", "content": "**a**"}, [["p", {}, ["strong", {}, "a"]]]),
        ({"tag": "div", "text": {"tag": "plain_text", "content": "a"}}, [["p", {}, "a"]]),
        ({"tag": "hr"}, [["hr", {}]]),
        (
            {"tag": "column_set", "columns": [{"tag": "column", "elements": [{"tag": "hr"}]}]},
            [["hr", {}]],
        ),
        (
            {"tag": "collapsible_panel", "header": {"title": {"content": "t"}}, "elements": [{"tag": "hr"}]},
            [["details", {}, ["summary", {}, "t"], ["hr", {}]]],
        ),
        (
            {"tag": "table", "columns": [{"name": "c", "display_name": "C"}], "rows": [{"c": "v"}]},
            [["table", {}, ["tr", {}, ["th", {}, "C"]], ["tr", {}, ["td", {}, "v"]]]],
        ),
    ],
)  # fmt: skip
def test_feishu_cards(element: dict[str, Any], tree: list[Node]) -> None:
    assert card_nodes(element) == tree


def test_the_lines_of_a_recording_leave_out_what_varies() -> None:
    names = MessageNames()
    first = SeenMessage(id="17.1", author="ann", body=["hello"])
    text = "Thread 0a1b2c3d-0000-4000-8000-0123456789ab, code ABCD2345, 2026-11-28 10:11:12, 1.5 s"
    second = SeenMessage(
        id="17.2", author="parley", body=[text], thread="17.1", only_for="ann", buttons=("Stop",), reactions=("👀",)
    )  # fmt: skip
    seen = SeenPlace(messages=[first, second, SeenMessage(id="draft", author="parley", body=["…"])])
    assert seen_lines("slack:C1", seen, names) == [
        "ann:",
        "  hello",
        "parley (in ann#1) (only for ann):",
        "  Thread (id), code (code), (time), (duration)",
        "  buttons: Stop",
        "  reactions: 👀",
    ]
    assert names.find("slack:C1", "parley#1") == "17.2"


def test_differences_name_the_place() -> None:
    assert differences({"a": ["x"]}, {"a": ["x"]}) == []
    found = differences({"a": ["x"]}, {"b": ["y"]})
    assert found[:2] == ["--- a (recorded)", "+++ a (replayed)"]
    assert {"-x", "+y"} <= set(found)


def test_a_tree_has_a_text() -> None:
    assert plain_text(["ul", {}, ["li", {}, "a"], ["li", {}, "b"]]) == "a\nb"
