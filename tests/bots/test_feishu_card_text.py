"""Every component of cards that Feishu documents, in JSON 1.0, 2.0 and the platform's own form."""

import json
from typing import Any

import pytest

from bots.feishu.card_text import card_markdown, is_card_withheld
from bots.feishu.json_node import JsonNode
from bots.feishu.people import People
from gateway.playground.feishu.shown import UPGRADE, stored

NAMES = {"ou_ann": "Ann"}


def plain(text: str) -> dict[str, Any]:
    return {"tag": "plain_text", "content": text}


def md(text: str) -> dict[str, Any]:
    return {"tag": "markdown", "content": text}


def column(*elements: object) -> dict[str, Any]:
    return {"tag": "column", "elements": list(elements)}


OPTIONS = [{"text": plain("One"), "value": "1"}, {"text": plain("Two"), "value": "2"}]
CHART = {
    "type": "bar",
    "title": {"text": "Sales"},
    "data": {"values": [{"month": "May", "sum": 3}, {"month": "June", "sum": 4.5}]},
}
TABLE = {
    "tag": "table",
    "columns": [
        {"name": "who", "display_name": "Who", "data_type": "persons"},
        {"name": "state", "display_name": "State", "data_type": "options"},
        {"name": "n", "data_type": "number"},
        {"name": "due", "display_name": "Due", "data_type": "date"},
        {"name": "note", "display_name": "Note", "data_type": "lark_md"},
    ],
    "rows": [
        {"who": ["ou_ann"], "state": [{"text": "late", "color": "red"}], "n": 2, "due": 1700000000000,
         "note": "a | b\nc"},
        {"who": "ou_ann", "n": 1.5},
    ],
}  # fmt: skip
TABLE_TEXT = (
    "| Who | State | n | Due | Note |\n| --- | --- | --- | --- | --- |\n"
    "| @Ann | late | 2 | 2023-11-14 22:13 UTC | a \\| b c |\n| @Ann |  | 1.5 |  |  |"
)
COMPONENTS: list[tuple[dict[str, Any], str]] = [
    # containers
    ({"tag": "column_set", "columns": [column(md("left")), column(md("right"))]}, "left | right"),
    ({"tag": "column_set", "columns": [column(md("a"), md("b")), column(md("c"))]}, "a\nb\nc"),
    ({"tag": "form", "name": "f", "elements": [md("fill in"), {"tag": "input", "label": plain("Why")}]},
     "fill in\n[Input: Why]"),
    ({"tag": "interactive_container", "elements": [md("click me")]}, "click me"),
    ({"tag": "collapsible_panel", "header": {"title": plain("Details")}, "elements": [md("hidden")]},
     "**Details**\nhidden"),
    ({"tag": "repeat", "elements": [md("each")]}, "each"),
    # contents
    ({"tag": "div", "text": {"tag": "lark_md", "content": "**a**"}}, "**a**"),
    ({"tag": "div", "fields": [{"is_short": True, "text": {"tag": "lark_md", "content": "**Owner**\nAnn"}},
                               {"text": plain("P1")}], "extra": {"tag": "button", "text": plain("Open")}},
     "**Owner**\nAnn\nP1\n[Open]"),
    (md("<font color='red'>late</font> <at id=ou_ann></at> <text_tag color='blue'>new</text_tag><br>"
        "<link url='https://a.example'>page</link> &lt;x&gt; `&lt;` ![chart](img_1)"),
     "late @Ann [new]\n[page](https://a.example) <x> `&lt;` [Image: chart]"),
    ({"tag": "note", "elements": [{"tag": "img", "img_key": "i", "alt": plain("")}, plain("from CI")]},
     "[Image] from CI"),
    ({"tag": "hr"}, "---"),
    ({"tag": "img", "img_key": "i", "alt": plain("A cat"), "title": plain("Cat")}, "[Image: Cat, A cat]"),
    ({"tag": "img", "img_key": "i", "alt": plain("")}, "[Image]"),
    ({"tag": "img_combination", "img_list": [{"img_key": "a"}, {"img_key": "b"}]}, "[Images: 2]"),
    ({"tag": "person", "user_id": "ou_ann"}, "@Ann"),
    ({"tag": "person_list", "persons": [{"id": "ou_ann"}, {"id": "ou_x"}]}, "@Ann, @someone"),
    ({"tag": "chart", "chart_spec": CHART},
     "[Chart: Sales, bar]\n| month | sum |\n| --- | --- |\n| May | 3 |\n| June | 4.5 |"),
    (TABLE, TABLE_TEXT),
    ({"tag": "audio", "file_key": "f"}, "[Audio]"),
    # interactive
    ({"tag": "input", "placeholder": plain("Reason"), "default_value": "none"}, "[Input: Reason, none]"),
    ({"tag": "button", "text": plain("Approve"), "value": {"a": 1}}, "[Approve]"),
    ({"tag": "button", "text": plain("Open"), "url": "https://a.example"}, "[Open](https://a.example)"),
    ({"tag": "button", "text": plain("Open"), "multi_url": {"url": "https://a.example"}},
     "[Open](https://a.example)"),
    ({"tag": "button", "text": plain("Open"),
      "behaviors": [{"type": "callback", "value": {}}, {"type": "open_url", "default_url": "https://a.example"}]},
     "[Open](https://a.example)"),
    ({"tag": "action", "actions": [{"tag": "button", "text": plain("Yes")}, {"tag": "button", "text": plain("No")}]},
     "[Yes] [No]"),
    ({"tag": "overflow", "options": OPTIONS}, "[Choice: One / Two]"),
    ({"tag": "select_static", "placeholder": plain("Pick"), "options": OPTIONS}, "[Choice: Pick, One / Two]"),
    ({"tag": "multi_select_static", "options": OPTIONS}, "[Choice: One / Two]"),
    ({"tag": "select_person", "placeholder": plain("Who?"), "options": [{"value": "ou_ann"}]},
     "[Choice: Who?, Ann]"),
    ({"tag": "multi_select_person", "options": [{"value": "ou_x"}]}, "[Choice: ou_x]"),
    ({"tag": "select_img", "options": [{"img_key": "a"}, {"img_key": "b"}]}, "[Choice of images: 2]"),
    ({"tag": "date_picker", "initial_date": "2026-01-02"}, "[Date: 2026-01-02]"),
    ({"tag": "picker_time", "placeholder": plain("When?")}, "[Date: When?]"),
    ({"tag": "picker_datetime", "initial_datetime": "2026-01-02 10:00"}, "[Date: 2026-01-02 10:00]"),
    ({"tag": "checker", "text": plain("Ship it"), "checked": True}, "- [x] Ship it"),
    ({"tag": "checker", "text": plain("Ship it")}, "- [ ] Ship it"),
    # not known yet
    ({"tag": "hologram", "title": plain("Waves"), "elements": [md("inside")]}, "Waves\ninside"),
]  # fmt: skip
"""The components on both versions' overview pages, and the text of each."""


def card_1(*elements: object) -> dict[str, Any]:
    return {"elements": list(elements)}


def card_2(*elements: object) -> dict[str, Any]:
    return {"schema": "2.0", "body": {"elements": list(elements)}}


def read(card: dict[str, Any]) -> str:
    return card_markdown(JsonNode(card), People(NAMES))


def own_form(card: dict[str, Any]) -> dict[str, Any]:
    return {"json_card": json.dumps(stored(card)), "card_schema": 2}


@pytest.mark.parametrize(("element", "expected"), COMPONENTS)
def test_every_component_of_a_card_is_read(element: dict[str, Any], expected: str) -> None:
    for card in (card_1(element), card_2(element)):
        assert read(card) == expected
        assert not is_card_withheld(JsonNode(card))
        assert read({"title": None, "elements": [], "user_dsl": json.dumps(card)}) == expected


@pytest.mark.parametrize(
    ("element", "expected"), [row for row in COMPONENTS if "font" not in str(row[0])]
)
def test_every_component_as_the_platform_stores_it(element: dict[str, Any], expected: str) -> None:
    assert read(own_form(card_2(element))) == expected


def test_titles_and_tags_of_a_card_are_read() -> None:
    header = {
        "title": plain("Build 7"),
        "subtitle": plain("main"),
        "text_tag_list": [{"tag": "text_tag", "text": plain("failed"), "color": "red"}],
    }
    card = {"header": header, **card_2(md("see the log"))}
    assert read(card) == "**Build 7**\nmain\n[failed]\nsee the log"
    assert read(own_form(card)) == "**Build 7**\nmain\n[failed]\nsee the log"
    localized = {"i18n_header": {"zh_cn": header}, "i18n_elements": {"zh_cn": [md("见日志")]}}
    assert read(localized) == "**Build 7**\nmain\n[failed]\n见日志"
    title = {"title": {"tag": "plain_text", "content": "", "i18n_content": {"en_us": "Hello"}}}
    assert read({"header": title, "elements": []}) == "**Hello**"


def test_cards_of_json_1_are_read() -> None:
    card = {
        "title": "Build",
        "elements": [
            [{"tag": "button", "text": "Yes", "type": "primary"}, {"tag": "button", "text": "No"}],
            [{"tag": "a", "href": "https://a.example", "text": "log"}, {"tag": "text", "text": " of "},
             {"tag": "at", "user_id": "@_user_1", "user_name": ""}],
            [{"tag": "hr"}],
            [{"tag": "note", "elements": [{"tag": "img", "image_key": "i"}, {"tag": "text", "text": "CI"}]}],
            [{"tag": "select_static", "options": ["a", "b"], "placeholder": "Pick"}],
            [{"tag": "overflow", "options": ["c"]}],
            [{"tag": "date_picker", "placeholder": "Day", "initial_date": "2021-1-1"}],
        ],
    }  # fmt: skip
    assert read(card) == (
        "**Build**\n[Yes][No]\n[log](https://a.example) of @_user_1\n\n---\n[Image] CI\n"
        "[Choice: Pick, a / b]\n[Choice: c]\n[Date: 2021-1-1]"
    )


def test_a_substitute_is_not_taken_for_the_card() -> None:
    rows = [[{"tag": "img", "image_key": "i"}, {"tag": "text", "text": UPGRADE}]]
    assert read({"title": "Build", "elements": rows}) == "**Build**"
    assert is_card_withheld(JsonNode({"title": "Build", "elements": rows}))
    quoting = card_2(md(f"old clients show: {UPGRADE}"))
    assert not is_card_withheld(JsonNode(quoting))
    assert UPGRADE in read(quoting)


def test_markdown_that_the_platform_took_apart() -> None:
    def node(tag: str, **fields: object) -> dict[str, Any]:
        return {"tag": tag, "property": fields}

    words = node("plain_text", content="bold", textStyle={"attributes": ["bold"]})
    parts = [
        node("heading", level=2, elements=[node("plain_text", content="Title")]),
        node("br"),
        node("list", items=[{"level": 0, "type": "ul", "elements": [words]},
                            {"level": 1, "type": "ol", "order": 2, "elements": [node("text", content="x")]}]),
        node("br"),
        node("blockquote", elements=[node("plain_text", content="said")]),
        node("br"),
        node("code_block", language="Go", contents=[{"contents": [{"content": "a := 1\n"}]}]),
        node("br"),
        node("code_span", content="x"), node("emoji", key="OK"), node("at", userID="u1"), node("at_all"),
        node("link", content="page", url={"url": "https://a.example"}),
        node("local_datetime", milliseconds="1700000000000"),
        node("person", userID="u2"), node("number_tag", text=node("plain_text", content="7")),
    ]  # fmt: skip
    card = {"body": node("body", elements=[node("markdown", elements=parts)])}
    attachment = {"at_users": {"u1": {"content": "Bo"}}, "persons": {"u2": {"content": "Cy"}}}
    raw = {"json_card": json.dumps(card), "json_attachment": json.dumps(attachment)}
    assert read(raw) == (
        "## Title\n- **bold**\n  2. x\n> said\n```go\na := 1\n```\n`x`:OK:@Bo@all"
        "[page](https://a.example)2023-11-14 22:13 UTC@Cy[7]"
    )


def test_deep_cards_end() -> None:
    element = md("deep")
    for _ in range(300):
        element = {"tag": "form", "elements": [element]}
    assert read(card_2(element, md("shallow"))) == "shallow"
    assert read({"elements": [[[[["x"]]]]], "header": [7]}) == ""
