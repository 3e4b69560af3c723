"""The adapter reads or names every message type and every rich text element that Feishu documents."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.feishu.content import UnsupportedContent, read_message
from bots.feishu.json_node import JsonNode
from bots.feishu.people import YOU
from bus.messages import Attachment

Shape = Callable[..., JsonNode]
NAMES = {"ou_ann": "Ann", "oc_team": "The Team"}
START, END = "1608265395000", "1608267015000"
FULL_CARD = {"schema": "2.0", "body": {"elements": [{"tag": "markdown", "content": "**done**"}]}}


def event(kind: str, content: object, **fields: object) -> JsonNode:
    """Return a message as in an event."""
    said = content if isinstance(content, str) else json.dumps(content)
    return JsonNode({"message_id": "om_1", "message_type": kind, "content": said, **fields})


def item(kind: str, content: object, **fields: object) -> JsonNode:
    """Return a message as in a response of the API."""
    said = content if isinstance(content, str) else json.dumps(content)
    return JsonNode({"message_id": "om_1", "msg_type": kind, "body": {"content": said}, **fields})


TYPES: list[tuple[str, object, str, list[str]]] = [
    ("text", {"text": "hi [docs](https://a.example)"}, "hi [docs](https://a.example)", []),
    ("post", {"title": "Plan", "content": [[{"tag": "text", "text": "at nine"}]]}, "Plan\nat nine", []),
    ("image", {"image_key": "img_1"}, "", ["image.png"]),
    ("file", {"file_key": "k", "file_name": "plan.pdf"}, "", ["plan.pdf"]),
    ("folder", {"file_key": "k", "file_name": "Photos"}, "[Folder: Photos, its files cannot be read here]", []),
    ("audio", {"file_key": "k", "duration": 2000}, "", ["audio-2s.opus"]),
    ("media", {"file_key": "k", "file_name": "a.mp4", "duration": 2000}, "", ["a.mp4"]),
    ("media", {"file_key": "k", "duration": 61000}, "", ["video-61s.mp4"]),
    ("sticker", {"file_key": "k"}, "[Sticker]", []),
    ("interactive", FULL_CARD, "**done**", []),
    ("hongbao", {"text": "[红包]"}, "[Red packet]", []),
    ("share_calendar_event", {"summary": "Review", "start_time": START, "end_time": END},
     "[Calendar event: Review, 2020-12-18 04:23 UTC to 2020-12-18 04:50 UTC]", []),
    ("calendar", {"summary": "Review", "start_time": START},
     "[Calendar event: Review, 2020-12-18 04:23 UTC]", []),
    ("general_calendar", {"summary": "Review"}, "[Calendar event: Review]", []),
    ("share_chat", {"chat_id": "oc_team"}, "[Group: The Team, oc_team]", []),
    ("share_chat", {"chat_id": "oc_2"}, "[Group: oc_2]", []),
    ("share_user", {"user_id": "ou_ann"}, "[Contact: Ann, ou_ann]", []),
    ("share_user", {"user_id": "ou_2"}, "[Contact: ou_2]", []),
    ("system", {"template": "{from_user} invited {to_chatters} to this chat.", "from_user": ["Bo"],
     "to_chatters": ["Ann", "Eve"]}, "[System message: Bo invited Ann, Eve to this chat.]", []),
    ("system", {"template": "{divider_text}", "divider_text": {"text": "New session"}},
     "[System message: New session]", []),
    ("location", {"name": "Main St 1", "longitude": "121.4", "latitude": "31.2"},
     "[Location: Main St 1, 31.2, 121.4]", []),
    ("video_chat", {"topic": "Standup", "start_time": START, "meet_number": "123 456"},
     "[Video meeting: Standup, 2020-12-18 04:23 UTC, number 123 456]", []),
    ("todo", {"task_id": "t", "summary": {"title": "", "content": [[{"tag": "text", "text": "Eat fruit"}]]},
     "due_time": START}, "[Task: Eat fruit, due 2020-12-18 04:23 UTC]", []),
    ("vote", {"topic": "Lunch?", "options": ["noodles", "rice"]}, "[Poll: Lunch?]\n- noodles\n- rice", []),
    ("merge_forward", "Merged and Forwarded Message", "", ["forwarded-messages.md"]),
    ("hologram", {"title": "Waves"}, "[Not readable here: a message of type hologram]\nWaves", []),
    ("nonsupport", {}, "[Not readable here: a message of type nonsupport]", []),
]  # fmt: skip
"""Rows of (type, content, text, file names): the documented types, and an unknown one."""


@pytest.mark.parametrize(("kind", "content", "text", "files"), TYPES)
@pytest.mark.parametrize("shape", [event, item])
def test_every_type_of_message_is_read_or_named(
    kind: str, content: object, text: str, files: list[str], shape: Shape
) -> None:
    read = read_message(shape(kind, content), names=NAMES)
    assert (read.text, [file.name for file in read.attachments]) == (text, files)


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        (
            "image",
            {"image_key": "img_1"},
            Attachment(
                name="image.png",
                mime="image/png",
                kind="image",
                ref="messages/om_1/resources/img_1?type=image",
            ),
        ),
        (
            "file",
            {"file_key": "f/1", "file_name": "a\x00b.pdf"},
            Attachment(
                name="ab.pdf",
                mime="application/pdf",
                kind="file",
                ref="messages/om_1/resources/f%2F1?type=file",
            ),
        ),
        (
            "audio",
            {"file_key": "f1", "duration": 2000},
            Attachment(
                name="audio-2s.opus",
                mime="audio/ogg",
                kind="audio",
                ref="messages/om_1/resources/f1?type=file",
                is_speech=True,
                duration_s=2.0,
            ),
        ),
        (
            "media",
            {"file_key": "f1", "file_name": "film.mp4"},
            Attachment(
                name="film.mp4",
                mime="video/mp4",
                kind="video",
                ref="messages/om_1/resources/f1?type=file",
            ),
        ),
    ],
)
def test_files_of_a_message_are_attached(kind: str, content: object, expected: Attachment) -> None:
    read = read_message(event(kind, content), names={})
    assert (read.text, read.attachments) == ("", (expected,))


ELEMENTS: list[tuple[dict[str, Any], str]] = [
    ({"tag": "text", "text": "plain"}, "plain"),
    ({"tag": "text", "text": "both ", "style": ["bold", "italic"]}, "***both*** "),
    ({"tag": "text", "text": "gone", "style": ["lineThrough"]}, "~~gone~~"),
    ({"tag": "text", "text": "line", "style": ["underline"]}, "line"),
    ({"tag": "text", "text": "x = 1", "style": ["codeInline"]}, "`x = 1`"),
    ({"tag": "text", "text": "  ", "style": ["bold"]}, "  "),
    ({"tag": "a", "text": "the page", "href": "https://a.example"}, "[the page](https://a.example)"),
    ({"tag": "a", "text": "the page", "href": "https://a.example", "style": ["bold"]},
     "**[the page](https://a.example)**"),
    ({"tag": "a", "href": "https://a.example"}, "https://a.example"),
    ({"tag": "at", "user_id": "@_user_1", "user_name": ""}, "@Bob Stone"),
    ({"tag": "at", "user_id": "ou_ann", "user_name": ""}, "@Ann"),
    ({"tag": "at", "user_id": "ou_eve", "user_name": "Eve"}, "@Eve"),
    ({"tag": "at", "user_id": "ou_x"}, "@someone"),
    ({"tag": "at", "user_id": "all"}, "@all"),
    ({"tag": "at", "user_id": "@_all"}, "@all"),
    ({"tag": "img", "image_key": "img_1"}, ""),
    ({"tag": "media", "file_key": "f", "image_key": "img_2"}, ""),
    ({"tag": "file", "file_key": "f", "file_name": "a.txt"}, ""),
    ({"tag": "emotion", "emoji_type": "SMILE"}, ":SMILE:"),
    ({"tag": "hr"}, "\n---"),
    ({"tag": "code_block", "language": "PYTHON", "text": "print(1)\n"}, "```python\nprint(1)\n```"),
    ({"tag": "code_block", "text": "a ``` b"}, "````\na ``` b\n````"),
    ({"tag": "md", "text": "**a** <at user_id=\"ou_1\">Eve</at> ![x](img_3) `&lt;` &lt;"},
     "**a** @Eve [Image: x] `&lt;` <"),
    ({"tag": "newest", "text": "words"}, "words"),
    ({"tag": "newest", "content": "words"}, "words"),
]  # fmt: skip
MENTIONS = [{"key": "@_user_1", "id": {"open_id": "ou_bob"}, "name": "Bob Stone"}]


@pytest.mark.parametrize(("element", "expected"), ELEMENTS)
@pytest.mark.parametrize("field", ["content", "content_v2"])
def test_every_element_of_rich_text(element: dict[str, Any], expected: str, field: str) -> None:
    content = {field: [[{"tag": "text", "text": "|"}, element, {"tag": "text", "text": "|"}]]}
    read = read_message(event("post", content, mentions=MENTIONS), names=NAMES)
    assert read.text == f"|{expected}|"


def test_the_files_of_rich_text_are_attached() -> None:
    content = {
        "zh_cn": {
            "content_v2": [[{"tag": "md", "text": "![a](img_1)"}], [{"tag": "img", "image_key": "img_2"}]],
            "content": [[{"tag": "media", "file_key": "f1"}, {"tag": "text", "text": "old"}]],
            "files": [{"file_key": "f2", "file_name": "a.txt"}],
        },
        "files": [{"file_key": "f3", "file_name": "b.txt"}],
    }  # fmt: skip
    read = read_message(event("post", content), names={})
    keys = [file.ref.split("/")[-1].split("?")[0] for file in read.attachments]
    assert (read.text, keys) == ("[Image: a]", ["img_1", "img_2", "f3", "f2"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@_user_1 hi", "@Bob Stone hi"),
        ("@_user_19:00 meeting", "@Bob Stone9:00 meeting"),
        ("@_user_2", "@_user_2"),
        ("@_all @_allow", "@all @_allow"),
    ],
)
@pytest.mark.parametrize("message", [event, item])
def test_mentions_are_names(text: str, expected: str, message: Shape) -> None:
    bob = MENTIONS if message is event else [{**MENTIONS[0], "id": "ou_bob"}]
    read = read_message(message("text", {"text": text}, mentions=bob), names={})
    assert (read.text, read.mentions) == (expected, {"ou_bob": "Bob Stone"})


def test_missing_names_are_reported() -> None:
    message = event("share_user", {"user_id": "ou_2"})
    assert read_message(message, names={}).unnamed == ("ou_2",)
    assert read_message(message, names={"ou_2": "Bo"}).unnamed == ()


def held(message_id: str, kind: str, content: object, **fields: object) -> JsonNode:
    said = content if isinstance(content, str) else json.dumps(content)
    sender = {"id": fields.pop("sender", "ou_ann"), "sender_type": fields.pop("by", "user")}
    body = {"content": said}
    return JsonNode(
        {"message_id": message_id, "msg_type": kind, "sender": sender, "body": body, **fields}
    )


def test_forwarded_messages_are_read_in_their_order_with_those_inside() -> None:
    messages = [
        held("c4", "text", {"text": "last"}, create_time="1700001000000", sender="ou_x"),
        held("c1", "text", {"text": "one\nBob: two"}, create_time="1700000000000"),
        held("c2", "merge_forward", "x", create_time="1700000001000", upper_message_id="om_1"),
        held("c3", "image", {"image_key": "img_1"}, create_time="1700000002000", upper_message_id="c2",
             sender="ou_y"),
        held("c5", "interactive", FULL_CARD, create_time="1700001000001", sender="cli_1", by="app"),
        held("c6", "text", "broken", create_time="1700001000002", sender="ou_y"),
    ]  # fmt: skip
    read = read_message(item("merge_forward", "x"), names=NAMES | {"cli_1": YOU}, held=messages)
    assert read.text.split("\n") == [
        "[2023-11-14 22:13 UTC]",
        "Ann: one",
        "  Bob: two",
        "Ann: [Forwarded]",
        "  [2023-11-14 22:13 UTC]",
        "  Person 1: [image: image.png]",
        "[2023-11-14 22:30 UTC]",
        "Person 2: last",
        "You: **done**",
        "Person 1: [Not readable here]",
    ]
    assert [file.ref for file in read.attachments] == ["messages/om_1/resources/img_1?type=image"]


def test_a_person_called_you_is_not_taken_for_the_bot() -> None:
    message = held("c1", "text", {"text": "hi"}, sender="ou_2")
    read = read_message(item("merge_forward", "x"), names={"ou_2": "you"}, held=[message])
    assert read.text == "you (not you): hi"


def test_many_forwarded_messages_become_a_file() -> None:
    messages = [held(f"c{n}", "text", {"text": "word " * 100}) for n in range(20)]
    read = read_message(item("merge_forward", "x"), names=NAMES, held=messages)
    assert read.text == "[20 messages: see forwarded-messages.md]"
    assert [file.ref for file in read.attachments] == ["forwarded/om_1"]


def test_messages_that_hold_each_other_end() -> None:
    messages = [
        held("c1", "merge_forward", "x", upper_message_id="c2"),
        held("c2", "merge_forward", "x", upper_message_id="c1"),
        held("c3", "text", {"text": "hi"}, upper_message_id="c3"),
    ]
    read = read_message(item("merge_forward", "x"), names=NAMES, held=messages)
    assert read.text == "Ann: hi"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tag", "text", "content", "title", "elements", "columns", "rows", "property", "body", "header",
                 "summary", "options", "user_id", "user_dsl", "file_key", "data", "values", "items", "template"]
            ),
            inner | st.sampled_from(["table", "chart", "column_set", "at", "button", "markdown", "list"]),
            max_size=5,
        )
    ),
    max_leaves=30,
)  # fmt: skip


@given(content=JSON, kind=st.sampled_from([kind for kind, *_ in TYPES]), inner=JSON)
def test_any_content_is_read_or_refused(content: object, kind: str, inner: object) -> None:
    messages = [JsonNode(inner), held("c", kind, content)]
    try:
        read = read_message(event(kind, content), names={}, held=messages)
    except UnsupportedContent:
        return
    read.text.encode()
