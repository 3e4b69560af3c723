"""Feishu events become messages: one table for each aspect."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.common.events import IgnoredEvent
from bots.feishu.api import FeishuBot
from bots.feishu.inbound import FeishuContext, parse_event
from bots.feishu.json_node import JsonNode, parse_json
from bus.messages import (
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    ReplyTarget,
    Sender,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition

BOT = FeishuBot(open_id="ou_0bot", name="Parley")
AT_BOT = {"key": "@_user_1", "id": {"open_id": "ou_0bot"}, "name": "Parley"}
AT_BOB = {"key": "@_user_2", "id": {"open_id": "ou_bob"}, "name": "Bob Stone"}


def event(
    content: object = None,
    *,
    kind: str = "text",
    sender: object = None,
    header: object = None,
    **message: object,
) -> JsonNode:
    """Return a message event. Keywords become fields of the message."""
    said = {"text": "hi"} if content is None else content
    body = {
        "message_id": "om_1", "chat_id": "oc_1", "chat_type": "group", "message_type": kind,
        "content": said if isinstance(said, str) else json.dumps(said), "create_time": "1700000000123",
    } | message  # fmt: skip
    who = sender or {
        "sender_id": {"open_id": "ou_alice"},
        "sender_type": "user",
        "tenant_key": "t1",
    }
    head = header or {"event_id": "ev_1", "event_type": "im.message.receive_v1", "tenant_key": "t1"}
    return JsonNode({"schema": "2.0", "header": head, "event": {"sender": who, "message": body}})


def parsed(payload: bytes) -> JsonNode:
    return JsonNode(parse_json(payload))


def read(envelope: JsonNode) -> InboundMessage:
    found = parse_event(envelope, BOT)
    assert isinstance(found, InboundMessage)
    return found


def ignored(envelope: JsonNode) -> IgnoredEvent:
    found = parse_event(envelope, BOT)
    assert isinstance(found, IgnoredEvent)
    return found


def test_every_field_of_an_event_is_read() -> None:
    assert read(event(mentions=[AT_BOT])) == InboundMessage(
        event_id="ev_1",
        message_id="om_1",
        key=ConversationKey(channel="feishu", workspace="t1", chat="oc_1", topic="om_1"),
        reply_target=ReplyTarget(chat="oc_1", reply_to="om_1"),
        sender=Sender(user_id="ou_alice"),
        text="hi",
        is_private=False,
        is_addressed=True,
        track_replies=True,
        sent_at=1700000000.123,
        order=1700000000123,
    )


@pytest.mark.parametrize(
    ("links", "topic", "replies_to"),
    [
        ({"chat_type": "p2p"}, "", ()),
        ({"chat_type": "p2p", "parent_id": "om_card", "root_id": "om_0"}, "", ("om_card", "om_0")),
        ({"chat_type": "p2p", "parent_id": "om_card", "root_id": "om_card"}, "", ("om_card",)),
        ({"chat_type": "p2p", "thread_id": "omt_1", "root_id": "om_0"}, "omt_1", ()),
        ({}, "om_1", ()),
        ({"parent_id": "om_card", "root_id": "om_0"}, "om_0", ("om_card", "om_0")),
        ({"root_id": "om_0"}, "om_0", ("om_0",)),
        ({"thread_id": "omt_1"}, "omt_1", ()),
        ({"thread_id": "omt_1", "parent_id": "om_card", "root_id": "om_0"}, "omt_1", ()),
        ({"thread_id": None, "root_id": "", "parent_id": 7}, "om_1", ()),
    ],
)
def test_links_of_a_message_determine_its_conversation(
    links: dict[str, Any], topic: str, replies_to: tuple[str, ...]
) -> None:
    inbound = read(event(**links))
    assert (inbound.key.topic, inbound.replies_to) == (topic, replies_to)
    thread = links.get("thread_id") or ""
    root = links.get("root_id", "") if thread else ""
    assert inbound.reply_target == ReplyTarget(
        chat="oc_1", thread=thread, reply_to="om_1", thread_root=root
    )
    assert inbound.is_private is (links.get("chat_type") == "p2p")
    assert inbound.track_replies is not inbound.is_private


@pytest.mark.parametrize(
    ("text", "mentions", "expected", "addressed"),
    [
        ("hi", [], "hi", False),
        ("@_user_1 hi", [AT_BOT], "hi", True),
        ("  @_user_1   /new  ", [AT_BOT], "/new", True),
        ("hi @_user_1 there", [AT_BOT], "hi there", True),
        ("@_user_2 hi", [AT_BOB], "@Bob Stone hi", False),
        (
            "@_user_1 ask @_user_2 and @_user_2",
            [AT_BOT, AT_BOB],
            "ask @Bob Stone and @Bob Stone",
            True,
        ),
        ("@_user_1 @_user_30", [AT_BOT], "@_user_30", True),
        ("@_user_1 @_user_29:00", [AT_BOT, AT_BOB], "@Bob Stone9:00", True),
        ("@_all hi", [], "@all hi", False),
        ("@_allow hi", [], "@_allow hi", False),
        ("@_user_1", [AT_BOT], "", True),
        ("/help@_user_1", [AT_BOT], "/help", True),
        ("/help@parley now", [], "/help now", True),
        ("/help@other", [], "/help@other", False),
        ("@_user_3 hi", [{"key": "@_user_3", "id": {"open_id": "ou_x"}}], "@someone hi", False),
        ("/mnt/user-data/x", [], "/mnt/user-data/x", False),
        ("a &lt; b", [], "a &lt; b", False),
        ("line\r\ntwo", [], "line\ntwo", False),
    ],
)
def test_mentions_in_a_text_become_names_and_address_the_bot(
    text: str, mentions: list[object], expected: str, addressed: bool
) -> None:
    inbound = read(event({"text": text}, mentions=mentions))
    assert (inbound.text, inbound.is_addressed) == (expected, addressed)


def test_a_private_chat_is_always_addressed() -> None:
    assert read(event(chat_type="p2p")).is_addressed


def test_a_name_alone_is_no_mention() -> None:
    imposter = {"key": "@_user_1", "id": {"open_id": "ou_eve"}, "name": "Parley"}
    inbound = read(event({"text": "@_user_1 hi"}, mentions=[imposter]))
    assert (inbound.text, inbound.is_addressed) == ("@Parley hi", False)


POST = {
    "title": "Plan",
    "content": [
        [
            {"tag": "at", "user_id": "@_user_1", "user_name": "Parley"},
            {"tag": "text", "text": " see "},
            {"tag": "a", "text": "the page", "href": "https://example.org"},
        ],
        [
            {"tag": "img", "image_key": "img_1"},
            {"tag": "media", "file_key": "file_2", "image_key": "img_2"},
        ],
        [{"tag": "code_block", "language": "PYTHON", "text": "print(1)\n"}],
        [{"tag": "at", "user_id": "ou_bob", "user_name": "Bob"}, {"tag": "at", "user_id": "all"}],
        [{"tag": "emotion", "emoji_type": "SMILE"}, {"tag": "hr"}, {"tag": "new", "text": "?"}],
    ],
}
POST_TEXT = (
    "Plan\nsee [the page](https://example.org)\n\n```python\nprint(1)\n```\n@Bob@all\n:SMILE:\n---?"
)


@pytest.mark.parametrize("content", [POST, {"zh_cn": POST}, {"post": POST}])
def test_rich_text_becomes_markdown_with_files(content: object) -> None:
    inbound = read(event(content, kind="post", mentions=[AT_BOT]))
    assert inbound.text == POST_TEXT
    assert inbound.is_addressed
    assert [(file.kind, file.ref) for file in inbound.attachments] == [
        ("image", "messages/om_1/resources/img_1?type=image"),
        ("video", "messages/om_1/resources/file_2?type=file"),
    ]


def test_rich_text_that_names_the_bot_by_id() -> None:
    content = {
        "content": [[{"tag": "at", "user_id": "ou_0bot"}, {"tag": "text", "text": "/status"}]]
    }
    assert read(event(content, kind="post")).text == "/status"


def test_files_of_a_rich_text_are_attached() -> None:
    content = {"content": [], "files": [{"file_key": "f1", "file_name": "a.txt"}]}
    (file,) = read(event(content, kind="post")).attachments
    assert (file.name, file.mime) == ("a.txt", "text/plain")


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (parsed(b""), Disposition.UNSUPPORTED),
        (parsed(b"\xff"), Disposition.UNSUPPORTED),
        (parsed(b"[" * 100_000), Disposition.UNSUPPORTED),
        (parsed(b"[]"), Disposition.UNSUPPORTED),
        (parsed(b'{"header": {"event_type": 7}, "event": "x"}'), Disposition.UNSUPPORTED),
        (event({"file_key": "x"}, kind="sticker"), Disposition.UNSUPPORTED),
        (event(kind="vote"), Disposition.UNSUPPORTED),
        (event(kind="system", chat_type="p2p"), Disposition.UNSUPPORTED),
        (event("not json"), Disposition.UNSUPPORTED),
        (event("[" * 100_000), Disposition.UNSUPPORTED),
        (event("[]"), Disposition.UNSUPPORTED),
        (event(message_id=None), Disposition.UNSUPPORTED),
        (event(chat_id=7), Disposition.UNSUPPORTED),
        (event(sender={"sender_type": "user"}), Disposition.UNSUPPORTED),
        (
            event(sender={"sender_id": {"open_id": "ou_x"}, "sender_type": "app"}),
            Disposition.FROM_BOT,
        ),
        (
            event(sender={"sender_id": {"open_id": "ou_x"}, "sender_type": "bot"}),
            Disposition.FROM_BOT,
        ),
        (
            event(sender={"sender_id": {"open_id": "ou_0bot"}, "sender_type": "user"}),
            Disposition.FROM_BOT,
        ),
        (event(header={"event_type": "im.message.recalled_v1"}), Disposition.UNSUPPORTED),
    ],
)
def test_messages_for_others_are_ignored(envelope: JsonNode, reason: Disposition) -> None:
    found = ignored(envelope)
    assert found.reason is reason
    assert 0 < len(found.detail) <= 120


@pytest.mark.parametrize(
    "content",
    [
        {"text": 7},
        {"text": None},
        {},
        {"text": "\ud800\x00\x1b[31m"},
        {"text": "\U0001f469\u200d\U0001f680" * 1000},
        {"text": "@_user_" * 20_000},
    ],
)
@pytest.mark.parametrize("mentions", [None, 7, [7], [{"key": None, "id": 3, "name": {}}]])
def test_hostile_texts_make_messages_that_can_be_stored(content: object, mentions: object) -> None:
    inbound = read(event(content, mentions=mentions))
    assert decode_inbound(encode_inbound(inbound)) == inbound


@pytest.mark.parametrize(
    "content",
    [
        {"content": 7},
        {
            "content": [
                7,
                [7, {"tag": 7}, {"tag": "text", "text": 7}, {"tag": "a"}, {"tag": "img"}],
            ],
            "files": {"a": 1},
        },
        {"zh_cn": 7, "en_us": {"content": [[{"tag": "text", "text": "\udfff"}]]}},
    ],
)
def test_hostile_rich_texts_make_messages_that_can_be_stored(content: object) -> None:
    inbound = read(event(content, kind="post"))
    assert decode_inbound(encode_inbound(inbound)) == inbound


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tag", "text", "content", "title", "files", "user_id", "zh_cn", "file_key", "href"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    content=JSON,
    kind=st.sampled_from(
        ["text", "post", "file", "image", "interactive", "todo", "system", "merge_forward", "vote"]
    ),
    mentions=JSON,
    fields=st.dictionaries(
        st.sampled_from(["thread_id", "root_id", "chat_type", "create_time"]), JSON
    ),
)
def test_any_json_is_read_or_ignored(
    content: object, kind: str, mentions: object, fields: dict[str, object]
) -> None:
    found = parse_event(event(json.dumps(content), kind=kind, mentions=mentions, **fields), BOT)
    if isinstance(found, InboundMessage):
        assert decode_inbound(encode_inbound(found)) == found
    else:
        assert isinstance(found, IgnoredEvent)
        assert found.detail


@pytest.mark.parametrize("clock", [None, "", "soon", "-1", "9" * 400, 7.5, True, "١٢"])
def test_a_strange_clock_is_no_clock(clock: object) -> None:
    assert read(event(create_time=clock)).sent_at is None


def test_an_event_without_an_id_goes_by_its_message() -> None:
    header = {"event_type": "im.message.receive_v1", "tenant_key": "t1"}
    assert read(event(header=header)).event_id == "om_1"


@pytest.mark.parametrize(
    "links", [{"chat_type": "p2p"}, {"parent_id": "om_card"}, {"thread_id": "omt"}]
)
def test_messages_without_text_are_named_if_they_are_for_the_bot(links: dict[str, Any]) -> None:
    assert read(event({"file_key": "x"}, kind="sticker", **links)).text == "[Sticker]"
    assert ignored(event({"file_key": "x"}, kind="sticker")).reason is Disposition.UNSUPPORTED


def test_a_card_is_somebody_elses_words_unless_a_bot_sent_it() -> None:
    card = {"title": "Build", "elements": [[{"tag": "text", "text": "failed"}]]}
    passed_on = read(event(card, kind="interactive", chat_type="p2p"))
    assert (passed_on.text, passed_on.quoted) == ("", "[Forwarded]\n> **Build**\n> failed")
    assert passed_on.is_forwarded
    app = {"sender_id": {"open_id": "ou_app"}, "sender_type": "app", "tenant_key": "t1"}
    spoken = read(event(card, kind="interactive", sender=app, mentions=[AT_BOT]))
    assert (spoken.text, spoken.quoted, spoken.is_forwarded) == ("**Build**\nfailed", "", False)


def test_a_type_that_the_event_does_not_tell_is_read_from_the_api() -> None:
    item = {"message_id": "om_1", "msg_type": "vote", "body": {"content": '{"topic": "Lunch?"}'}}
    context = FeishuContext(page=[JsonNode(item)], names={"ou_alice": "Alice"})
    found = parse_event(event({}, kind="nonsupport", chat_type="p2p"), BOT, context)
    assert isinstance(found, InboundMessage)
    assert (found.text, found.sender.name) == ("[Poll: Lunch?]", "Alice")


def test_a_message_of_the_system_says_nothing() -> None:
    found = ignored(event({"template": "x"}, kind="system", chat_type="p2p"))
    assert found.reason is Disposition.UNSUPPORTED


def happening(kind: str, told: object, **header: str) -> JsonNode:
    head = {"event_id": "ev_1", "event_type": kind, "tenant_key": "t1"} | header
    return JsonNode({"schema": "2.0", "header": head, "event": told})


def test_a_withdrawn_message_is_a_deleted_one() -> None:
    told = {"message_id": "om_1", "chat_id": "oc_1", "recall_type": "message_owner"}
    key = ConversationKey(channel="feishu", workspace="t1", chat="oc_1", topic="")
    found = parse_event(happening("im.message.recalled_v1", told), BOT)
    assert found == MessageDeletion(event_id="ev_1", key=key, message_id="om_1")


@given(
    told=JSON,
    kind=st.sampled_from(
        [
            "im.message.recalled_v1",
            "im.chat.member.bot.added_v1",
            "im.chat.access_event.bot_p2p_chat_entered_v1",
            "application.bot.menu_v6",
            "card.action.trigger",
        ]
    ),
)
def test_any_event_is_read_or_ignored(told: object, kind: str) -> None:
    found = parse_event(happening(kind, told), BOT)
    assert not isinstance(found, InboundMessage)


def test_forwarded_messages_are_a_file() -> None:
    inbound = read(event("Merged and Forwarded Message", kind="merge_forward", chat_type="p2p"))
    (attachment,) = inbound.attachments
    assert (attachment.name, attachment.ref) == ("forwarded-messages.md", "forwarded/om_1")
    assert (inbound.text, inbound.quoted, inbound.is_forwarded) == ("", "", True)


def test_a_mention_by_another_bot_is_left_to_the_bus() -> None:
    app = {"sender_id": {"open_id": "ou_app"}, "sender_type": "app", "tenant_key": "t1"}
    inbound = read(event(sender=app, mentions=[AT_BOT]))
    assert (inbound.sender.user_id, inbound.sender.is_bot) == ("ou_app", True)
    assert ignored(event(sender=app, mentions=[AT_BOT], chat_type="p2p")).reason is (
        Disposition.FROM_BOT
    )


@pytest.mark.parametrize(
    ("mentions", "mentions_others"),
    [
        ([], False),
        ([{"key": "@_user_2", "id": {"open_id": "ou_bob"}, "name": "Bob"}], True),
        ([{"key": "@_all", "id": {"open_id": "all"}, "name": "Everyone"}], False),
        ([AT_BOT, {"key": "@_user_2", "id": {"open_id": "ou_bob"}, "name": "Bob"}], False),
    ],
)
def test_mentions_of_other_people_are_noted(mentions: list[object], mentions_others: bool) -> None:
    assert read(event(mentions=mentions)).mentions_others is mentions_others
