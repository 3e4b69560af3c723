"""The adapter reads or names every part of a Slack message that tests/data/slack-message-parts.json lists."""

import json
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.models import blocks as sdk

from bots.slack.attachments import parse_attachments
from bots.slack.mentions import put_names
from bots.slack.message_reader import read_message
from bots.slack.payload import SlackIdentity

PARTS: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "slack-message-parts.json").read_text()
)
ME = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT")
NAMES = {"U2": "Bob", "C5": "general", "S1": "devs"}


def plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def mrkdwn(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": text}


def section(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text_section", "elements": [*parts]}


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [*elements]}


def text(words: str, **style: bool) -> dict[str, Any]:
    return {"type": "text", "text": words, **({"style": style} if style else {})}


def read(message: dict[str, Any]) -> str:
    return put_names(read_message(message, ME).text, NAMES)


def read_block(block: dict[str, Any]) -> str:
    return read({"bot_id": "B1", "blocks": [block]})


PHOTO = {"type": "image", "alt_text": "a cat", "image_url": "https://x.test/cat.png"}
BUTTON = {"type": "button", "text": plain("Approve &amp; go"), "value": "1"}
CARD = {
    "type": "card",
    "title": mrkdwn("Lumon"),
    "subtitle": mrkdwn("Industries"),
    "body": mrkdwn("ask <@U2>"),
    "subtext": mrkdwn("small"),
    "hero_image": PHOTO,
    "actions": [BUTTON],
}
TASK = {
    "type": "task_card",
    "task_id": "1",
    "title": "Fetch it",
    "status": "complete",
    "details": rich(section(text("24 pages"))),
    "output": rich(section(text("done"))),
    "sources": [{"type": "url", "url": "https://x.test/", "text": "the source"}],
}

BLOCKS: dict[str, tuple[dict[str, Any], str]] = {
    "actions": ({"elements": [BUTTON, BUTTON | {"text": plain("Deny")}]},
                "[Button: Approve & go]\n[Button: Deny]"),
    "alert": ({"text": mrkdwn("*Disk* full"), "level": "error"}, "[error] *Disk* full"),
    "auth_provider": ({"name": plain("GitHub"), "description": plain("Code")}, "[Sign-in: GitHub, Code]"),
    "call": ({"call_id": "R1", "call": {"v1": {"name": "Standup", "join_url": "https://x.test/j"}}},
             "[Call: Standup (https://x.test/j)]"),
    "card": (CARD, "[Image: a cat (https://x.test/cat.png)]\n**Lumon**\nIndustries\nask @Bob\nsmall\n"
                   "[Button: Approve & go]"),
    "carousel": ({"elements": [{"type": "card", "title": mrkdwn("One")}, {"type": "card", "title": mrkdwn("Two")}]},
                 "**One**\n**Two**"),
    "container": ({"title": plain("Box"), "subtitle": plain("sub"), "child_blocks": [
        {"type": "header", "text": plain("Inside")}]}, "**Box**\nsub\n**Inside**"),
    "context": ({"elements": [PHOTO, mrkdwn("by <@U2>")]}, "[Image: a cat (https://x.test/cat.png)] by @Bob"),
    "context_actions": ({"elements": [
        {"type": "feedback_buttons",
         "positive_button": {"text": plain("Good")}, "negative_button": {"text": plain("Bad")}},
        {"type": "icon_button", "icon": "trash", "text": plain("Delete")}]},
        "[Button: Good]\n[Button: Bad]\n[Button: Delete]"),
    "data_table": ({"caption": "Sales", "rows": [
        [{"type": "raw_text", "text": "Month"}, {"type": "raw_text", "text": "Sum"}],
        [{"type": "raw_text", "text": "May"}, {"type": "raw_number", "value": 12}]]},
        "Sales\n| Month | Sum |\n| --- | --- |\n| May | 12 |"),
    "data_visualization": ({"title": "Pies", "chart": {
        "type": "bar", "series": [{"name": "2025", "data": [{"label": "Apple", "value": 3}]}],
        "axis_config": {"categories": ["Apple"], "x_label": "Pie", "y_label": "Sold"}}},
        "**Pies**\nSold\n| Pie | 2025 |\n| --- | --- |\n| Apple | 3 |"),
    "divider": ({}, ""),
    "file": ({"source": "remote", "external_id": "ABCD1"}, "[File outside Slack: ABCD1]"),
    "header": ({"text": plain("CPU high")}, "**CPU high**"),
    "image": ({"alt_text": "a graph", "title": plain("CPU"), "image_url": "https://x.test/g.png"},
              "[Image: CPU, a graph (https://x.test/g.png)]"),
    "input": ({"label": plain("Your name"), "hint": plain("all of it"),
               "element": {"type": "plain_text_input", "placeholder": plain("Ann Li")}},
              "**Your name**\nall of it\n[Field: Ann Li]"),
    "markdown": ({"text": "**bold** `List<String>` <@U2>"}, "**bold** `List<String>` @Bob"),
    "plan": ({"title": "Steps", "tasks": [{"task_id": "1", "title": "Fetch", "status": "pending"}]},
             "**Steps**\n- [ ] Fetch"),
    "rich_text": ({"elements": [section(text("a &amp; b <c>"))]}, "a &amp; b <c>"),
    "section": ({"text": mrkdwn("R&amp;D in <#C5>"), "fields": [mrkdwn("*Priority*"), plain("High")],
                 "accessory": BUTTON}, "R&D in #general\n*Priority*\nHigh\n[Button: Approve & go]"),
    "table": ({"rows": [[rich(section(text("A"))), {"type": "raw_text", "text": "B|C"}], [rich(section(text("1")))]]},
              "| A | B\\|C |\n| --- | --- |\n| 1 |  |"),
    "task_card": (TASK, "- [x] Fetch it\n  24 pages\n  done\n  the source (https://x.test/)"),
    "video": ({"video_url": "https://x.test/v", "title": plain("Demo"), "title_url": "https://x.test/t",
               "alt_text": "demo", "author_name": "Ann", "provider_name": "Tube", "description": plain("How it goes")},
              "[Video: Demo (https://x.test/t), Ann, Tube]\nHow it goes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS["blocks"])
def test_every_block_is_read(kind: str) -> None:
    block, said = BLOCKS[kind]
    assert read_block(block | {"type": kind}) == said


def test_the_list_has_every_block_that_the_sdk_has() -> None:
    classes = [one for one in vars(sdk).values() if isinstance(one, type)]
    kinds = (getattr(one, "type", None) for one in classes if issubclass(one, sdk.Block))
    known = {kind for kind in kinds if isinstance(kind, str)}
    assert known
    assert known <= set(PARTS["blocks"])


OPTIONS = [
    {"text": plain("Red"), "value": "1"},
    {"text": plain("Blue"), "value": "2", "description": plain("dark")},
]
CHOICE = "[Field: Color?; Red, Blue (dark)]"
ELEMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "button": ({"text": plain("Open"), "url": "https://x.test/"}, "[Button: Open (https://x.test/)]"),
    "workflow_button": ({"text": plain("Run")}, "[Button: Run]"),
    "feedback_buttons": ({"positive_button": {"text": plain("Good")}}, "[Button: Good]"),
    "icon_button": ({"icon": "trash"}, "[Button: trash]"),
    "image": ({"alt_text": "a cat"}, "[Image: a cat]"),
    "url": ({"url": "https://x.test/", "text": "source"}, "source (https://x.test/)"),
    "datepicker": ({"placeholder": plain("When?"), "initial_date": "2026-01-01"},
                   "[Field: When?; filled in: 2026-01-01]"),
    "plain_text_input": ({"placeholder": plain("Why?"), "initial_value": "because"},
                         "[Field: Why?; filled in: because]"),
    "static_select": ({"placeholder": plain("Color?"), "option_groups": [{"label": plain("All"), "options": OPTIONS}]},
                      CHOICE),
    "radio_buttons": ({"options": OPTIONS, "initial_option": OPTIONS[0]},
                      "[Field: Red, Blue (dark); filled in: Red]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS["elements"])
def test_every_element_of_blocks_is_read(kind: str) -> None:
    element, said = ELEMENTS.get(
        kind, ({"placeholder": plain("Color?"), "options": OPTIONS}, CHOICE)
    )
    assert read_block({"type": "actions", "elements": [element | {"type": kind}]}) == said


RICH: dict[str, tuple[dict[str, Any], str]] = {
    "attachment_mention": ({"url": "https://x.test/1", "text": "PROJ-1"}, "[PROJ-1](https://x.test/1)"),
    "broadcast": ({"range": "here"}, "@here"),
    "canvas": ({"file_id": "F1"}, "canvas F1"),
    "canvas_message_unfurl": ({"root_message_ts": "1.5", "root_message_channel": "C5"}, "a message in #general"),
    "canvas_user_mention": ({"user_id": "U2"}, "@Bob"),
    "channel": ({"channel_id": "C5"}, "#general"),
    "citation": ({"url": "https://x.test/", "text": "Source", "index": 1}, "[Source](https://x.test/)"),
    "color": ({"value": "#aabbcc"}, "#aabbcc"),
    "date": ({"timestamp": 1767225600, "format": "{date}", "url": "https://x.test/"},
             "[2026-01-01 00:00 UTC](https://x.test/)"),
    "emoji": ({"name": "wave", "unicode": "1f44b-1f3fb"}, "\U0001f44b\U0001f3fb"),
    "file": ({"file_id": "F1", "text": "spec.pdf"}, "spec.pdf"),
    "link": ({"url": "https://x.test/", "text": "here"}, "[here](https://x.test/)"),
    "list_record": ({"file_id": "F1", "record_id": "Rec1"}, "list F1"),
    "message_mention": ({"channel_id": "C5", "message_ts": "1.5", "author_id": "U2"}, "a message by @Bob in #general"),
    "salesforce_data_field": ({"salesforce_record_id": "001", "salesforce_field_label": "Stage"},
                              "Salesforce 001 Stage"),
    "tag": ({"text": "urgent", "color": "red"}, "urgent"),
    "team": ({"team_id": "T9"}, "@T9"),
    "text": ({"text": "a_b*c"}, "a_b*c"),
    "user": ({"user_id": "U2"}, "@Bob"),
    "usergroup": ({"usergroup_id": "S1"}, "@devs"),
    "work_object_mention": ({"entity_id": "1", "app_id": "A1", "text": "Deal", "url": "https://x.test/d"},
                            "[Deal](https://x.test/d)"),
    "workflow_mention": ({"workflow_id": "W1", "function_trigger_id": "F1", "text": "Onboard"}, "Onboard"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS["rich_text"])
def test_every_element_of_rich_text_is_read(kind: str) -> None:
    part, said = RICH[kind]
    assert read_block(rich(section(part | {"type": kind}))) == said


OBJECTS: dict[str, tuple[dict[str, Any], str]] = {
    "rich_text_section": (section(text("one\n")), "one"),
    "rich_text_list": ({"style": "ordered", "offset": 2, "indent": 1, "elements": [section(text("a\nb"))]},
                       "3. a\n        b"),
    "rich_text_preformatted": ({"language": "python", "elements": [text("x = 1\n")]}, "```python\nx = 1\n```"),
    "rich_text_quote": ({"elements": [text("a\nb")]}, "> a\n> b"),
    "rich_text_header": ({"text": plain("Head")}, "**Head**"),
    "rich_text_divider": ({}, "---"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS["rich_text_objects"])
def test_every_object_of_rich_text_is_read(kind: str) -> None:
    element, said = OBJECTS[kind]
    assert read_block(rich(element | {"type": kind})) == said


FIELDS: dict[str, tuple[object, str]] = {
    "actions": ([{"type": "button", "text": "Ack", "url": "https://x.test/"},
                 {"type": "select", "text": "Who", "options": [{"text": "Ann"}, {"text": "Bob"}]}],
                "[Button: Ack (https://x.test/)]\n[Field: Who; Ann, Bob]"),
    "attachments": ([{"text": "inner"}], "inner"),
    "author_name": ("Grafana", "Grafana"),
    "author_subname": ("v9", "v9"),
    "blocks": ([{"type": "header", "text": plain("CPU high")}], "**CPU high**"),
    "fallback": ("Disk full", "Disk full"),
    "fields": ([{"title": "Host", "value": "<@U2>'s"}, {"value": "only"}], "Host: @Bob's\nonly"),
    "footer": ("Grafana &amp; co", "Grafana & co"),
    "image_url": ("https://x.test/g.png", "[Image: https://x.test/g.png]"),
    "pretext": ("Look:", "Look:"),
    "text": ("CPU is *high*", "CPU is *high*"),
    "title": ("CPU", "CPU"),
    "ts": (1767225600, "2026-01-01 00:00 UTC"),
    "files": ([{"id": "F1", "title": "Plan", "mode": "external", "external_url": "https://x.test/p"}],
              "[File outside Slack: Plan (https://x.test/p)]"),
    # These are ignored.
    "author_icon": ("https://x.test/i.png", ""), "footer_icon": ("https://x.test/i.png", ""),
    "thumb_url": ("https://x.test/i.png", ""), "callback_id": ("c", ""), "color": ("danger", ""),
    "mrkdwn_in": (["text"], ""), "author_link": ("https://x.test/", ""), "title_link": ("https://x.test/", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS["attachment_fields"])
def test_every_field_of_attachments_is_read(name: str) -> None:
    value, said = FIELDS[name]
    assert read({"bot_id": "B1", "attachments": [{name: value}]}) == said


def test_an_attachment_is_read_from_top_to_bottom() -> None:
    attachment = {
        "title_link": "https://x.test/t", "author_link": "https://x.test/a", "color": "danger",
        **{name: FIELDS[name][0] for name in ("pretext", "author_name", "title", "text", "fields", "footer", "ts")},
        "fallback": "CPU is high on web-1", "blocks": [{"type": "header", "text": plain("Web-1")}],
    }  # fmt: skip
    assert read({"bot_id": "B1", "attachments": [attachment]}).split("\n") == [
        "Look:",
        "Grafana (https://x.test/a)",
        "CPU (https://x.test/t)",
        "CPU is *high*",
        "**Web-1**",
        "Host: @Bob's",
        "only",
        "Grafana & co, 2026-01-01 00:00 UTC",
    ]


@pytest.mark.parametrize("mode", PARTS["file_modes"])
def test_every_file_is_attached_with_its_name(mode: str) -> None:
    file = {"id": "F1", "name": "-", "title": "Q3 plan", "mode": mode, "mimetype": "x/y", "size": 3}
    (found,) = parse_attachments(
        [file | ({"name": "a.txt"} if mode in {"hosted", "snippet"} else {})]
    )
    made_in_slack = dict.fromkeys(
        ("canvas", "docs", "email", "post", "quip", "space"), ("Q3 plan.html", "text/html")
    )
    made_in_slack["list"] = ("Q3 plan.csv", "text/csv")
    missing = {"external", "hidden_by_limit", "tombstone"}
    assert (found.name, found.mime) == made_in_slack.get(
        mode, ("-" if mode in missing else "a.txt", "x/y")
    )
    assert (found.ref == f"no file: {mode}") == (mode in missing)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"blocks": [{"type": "hologram"}]}, "[Not readable here: a hologram block]"),
        ({"blocks": [{"type": "hologram"}], "text": "it says"}, "it says\n[Not readable here: a hologram block]"),
        ({"blocks": [rich(section({"type": "smell"}))]}, "[Not readable here: a smell element]"),
        ({"blocks": [rich(section({"type": "smell", "text": "rose", "url": "https://x.test/"}))]},
         "[rose](https://x.test/)"),
        ({"blocks": [rich({"type": "rich_text_spiral", "elements": []})]},
         "[Not readable here: a rich_text_spiral element]"),
        ({"blocks": [{"type": "actions", "elements": [{"type": "lever"}]}]}, "[Not readable here: a lever element]"),
        ({"blocks": [{"type": "data_visualization", "title": "T", "chart": {"type": "radar"}}]},
         "**T**\n[Not readable here: a radar chart]"),
        ({"blocks": [{"type": "a\nb" * 99}, {}, "x", {"type": 7}]}, None),
    ],
)  # fmt: skip
def test_unknown_blocks_are_named(message: dict[str, Any], said: str | None) -> None:
    found = read(message)
    assert found == said if said is not None else found.count("[Not readable here: a ") == 4
