"""Telegram updates become messages of the bus: a table with every case."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.common.events import IgnoredEvent
from bots.telegram.events import TelegramEvent, parse_update
from bots.telegram.identity import TelegramIdentity
from bus.messages import Attachment, ConversationKey, InboundMessage, ReplyTarget
from bus.messages import decode_inbound as decode
from bus.messages import encode_inbound as encode
from bus.platform import Disposition
from gateway.playground.telegram.chats import Wire, detect

ME = TelegramIdentity(user_id=700700, username="Parley_Bot")
COMMANDS = {"help", "new"}
GROUP = -1001234567890
ALICE = {"id": 1001, "is_bot": False, "first_name": "Alice", "last_name": "Liddell"}
BOT = {"id": 700700, "is_bot": True, "first_name": "Parley", "username": "Parley_Bot"}
PRIVATE = {"id": 1001, "type": "private", "first_name": "Alice"}
PLAIN = {"id": GROUP, "type": "supergroup", "title": "Team"}
FORUM = PLAIN | {"is_forum": True}
TOPIC: dict[str, Any] = {"message_thread_id": 40, "is_topic_message": True}
OPENED = {"forum_topic_created": {"name": "Plans", "icon_color": 1}}
CREATED = {"message_id": 40, "date": 1_790_000_000, "chat": FORUM, "from": BOT} | OPENED


def message(**fields: Wire) -> dict[str, Any]:
    body: dict[str, Any] = {
        "message_id": 55,
        "date": 1_790_000_000,
        "chat": PRIVATE,
        "from": ALICE,
    } | fields
    if isinstance(body.get("text"), str) and "entities" not in body:
        body["entities"] = detect(body["text"])
    if isinstance(body.get("caption"), str) and "caption_entities" not in body:
        body["caption_entities"] = detect(body["caption"])
    return {key: value for key, value in body.items() if value is not None}


def read(**fields: Wire) -> TelegramEvent:
    return meaning({"update_id": 9, "message": message(**fields)})


def meaning(update: dict[str, Any]) -> TelegramEvent:
    return parse_update(update, ME, COMMANDS)


def accepted(**fields: Wire) -> InboundMessage:
    result = read(**fields)
    assert isinstance(result, InboundMessage), result
    return result


def replied(**fields: Wire) -> dict[str, Any]:
    return message(**{"message_id": 33, "text": "before", "chat": PLAIN} | fields)


def test_private_message_is_one_conversation() -> None:
    inbound = accepted(text="Hello")
    assert inbound.event_id == "9"
    assert inbound.message_id == "55"
    assert inbound.key == ConversationKey(
        channel="telegram", workspace="700700", chat="1001", topic=""
    )
    assert inbound.reply_target == ReplyTarget(chat="1001", reply_to="55")
    assert (inbound.sender.user_id, inbound.sender.name) == ("1001", "Alice Liddell")
    assert inbound.is_private
    assert inbound.is_addressed
    assert (inbound.replies_to, inbound.track_replies) == ((), False)
    assert inbound.sent_at == 1_790_000_000.0


@dataclass(kw_only=True)
class InboundCase:
    """A message's place, and the conversation to which it belongs."""

    name: str
    fields: dict[str, Any]
    topic: str
    thread: str = ""
    replies_to: tuple[str, ...] = ()
    remember: bool = False
    addressed: bool = True


WAYS = [
    InboundCase(
        name="a topic of a private chat", fields={"chat": PRIVATE, **TOPIC}, topic="40", thread="40"
    ),
    InboundCase(
        name="a reply in a private chat",
        fields={"reply_to_message": replied(chat=PRIVATE)},
        topic="",
    ),
    InboundCase(
        name="a new chain in a group",
        fields={"chat": PLAIN},
        topic="55",
        remember=True,
        addressed=False,
    ),
    InboundCase(
        name="a reply to the bot",
        fields={"chat": PLAIN, "reply_to_message": replied(**{"from": BOT})},
        topic="55",
        replies_to=("33",),
        remember=True,
    ),
    InboundCase(
        name="a reply to a person",
        fields={"chat": PLAIN, "reply_to_message": replied()},
        topic="55",
        replies_to=("33",),
        remember=True,
        addressed=False,
    ),
    InboundCase(
        name="a reply thread without topic",
        fields={
            "chat": PLAIN,
            "message_thread_id": 33,
            "reply_to_message": replied(**{"from": BOT}),
        },
        topic="55",
        replies_to=("33",),
        remember=True,
    ),
    InboundCase(name="the General topic", fields={"chat": FORUM}, topic="1", addressed=False),
    InboundCase(
        name="the General topic by its number",
        fields={"chat": FORUM, "message_thread_id": 1, "is_topic_message": True},
        topic="1",
        addressed=False,
    ),
    InboundCase(
        name="a reply to the bot in the General topic",
        fields={
            "chat": FORUM,
            "message_thread_id": 33,
            "reply_to_message": replied(chat=FORUM, **{"from": BOT}),
        },
        topic="1",
    ),
    InboundCase(
        name="the first topic of a private chat",
        fields={"chat": PRIVATE, "message_thread_id": 1, "is_topic_message": True},
        topic="1",
        thread="1",
    ),
    InboundCase(
        name="a reply to the bot's message of another topic",
        fields={
            "chat": FORUM,
            **TOPIC,
            "reply_to_message": CREATED,
            "external_reply": {
                "origin": {"type": "user", "date": 1, "sender_user": BOT},
                "chat": FORUM,
                "message_id": 7,
            },
        },
        topic="40",
        thread="40",
    ),
    InboundCase(
        name="a topic that the bot opened",
        fields={"chat": FORUM, **TOPIC, "reply_to_message": CREATED},
        topic="40",
        thread="40",
        addressed=False,
    ),
    InboundCase(
        name="a reply to the bot in a topic",
        fields={
            "chat": FORUM,
            **TOPIC,
            "reply_to_message": replied(chat=FORUM, **{"from": BOT}, **TOPIC),
        },
        topic="40",
        thread="40",
    ),
    InboundCase(
        name="a basic group",
        fields={"chat": {"id": -4001, "type": "group", "title": "Few"}},
        topic="55",
        remember=True,
        addressed=False,
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_message_determines_its_conversation_and_reply_target(way: InboundCase) -> None:
    inbound = accepted(text="Hi", **way.fields)
    assert inbound.key.topic == way.topic
    assert inbound.reply_target.thread == way.thread
    assert inbound.reply_target.reply_to == "55"
    assert inbound.replies_to == way.replies_to
    assert inbound.track_replies == way.remember
    assert inbound.is_addressed == way.addressed


@pytest.mark.parametrize(
    ("said", "text", "addressed"),
    [
        ("@parley_bot hello", "hello", True),
        ("@PARLEY_BOT hello", "hello", True),
        ("hello @Parley_Bot", "hello", True),
        ("hello @Parley_Bot there", "hello there", True),
        ("hello @Parley_Bot, there", "hello , there", True),
        ("👩‍🚀😀 @Parley_Bot 你好", "👩‍🚀😀 你好", True),
        ("@Parley_Bot @Parley_Bot", "/help", True),
        ("@alice and @Parley_Bot_2 hello", "@alice and @Parley_Bot_2 hello", False),
        ("mail me@Parley_Bot.org", "mail me@Parley_Bot.org", False),
        ("/help", "/help", True),
        ("/HELP now", "/HELP now", True),
        ("/help@parley_bot now", "/help now", True),
        ("@Parley_Bot /help", "/help", True),
        ("@Parley_Bot /help@Parley_Bot x", "/help x", True),
        ("see /help@Parley_Bot", "see /help", True),
        ("/roll 6", "/roll 6", False),
        ("/roll@Parley_Bot 6", "/roll 6", True),
        ("/mnt/user-data/x", "/mnt/user-data/x", False),
        ("//new", "//new", False),
        ("see /help", "see /help", False),
        ("/start@Parley_Bot", "/help", True),
        ("/start", "/help", False),
    ],
)
def test_addressed_messages_in_a_group(said: str, text: str, addressed: bool) -> None:
    inbound = accepted(chat=PLAIN, text=said)
    assert (inbound.text, inbound.is_addressed) == (text, addressed)


@pytest.mark.parametrize("said", ["/help@other_bot", "/roll@Other_Bot 6", "  /new@x_bot"])
@pytest.mark.parametrize("chat", [PRIVATE, PLAIN])
def test_commands_for_other_bots_are_ignored(said: str, chat: dict[str, Any]) -> None:
    result = read(chat=chat, text=said)
    assert result == IgnoredEvent("another bot's command", Disposition.NOT_ADDRESSED)


@pytest.mark.parametrize("said", ["/start", "/start invite_42"])
def test_start_asks_for_help(said: str) -> None:
    assert accepted(text=said).text == "/help"


def test_start_is_chat_where_help_is_no_command() -> None:
    update = {"update_id": 1, "message": message(text="/start")}
    assert getattr(parse_update(update, ME, set()), "text", None) == "/start"


def test_names_without_entity_are_words() -> None:
    inbound = accepted(chat=PLAIN, text="see @Parley_Bot", entities=[])
    assert (inbound.text, inbound.is_addressed) == ("see @Parley_Bot", False)


@pytest.mark.parametrize(
    ("user", "text", "addressed"), [(BOT, "hi", True), (ALICE, "Par hi", False)]
)
def test_a_text_mention_of_the_bot_addresses_it(
    user: dict[str, Any], text: str, addressed: bool
) -> None:
    entity = {"type": "text_mention", "offset": 0, "length": 3, "user": user}
    inbound = accepted(chat=PLAIN, text="Par hi", entities=[entity])
    assert (inbound.text, inbound.is_addressed) == (text, addressed)


@pytest.mark.parametrize(
    ("fields", "reason", "detail"),
    [
        ({"text": "x", "from": BOT}, Disposition.FROM_BOT, "text"),
        ({"text": "x", "from": BOT | {"id": 5}}, Disposition.FROM_BOT, "text"),
        ({"text": "x", "from": None}, Disposition.UNSUPPORTED, "channel post"),
        (
            {"text": "x", "chat": {"id": GROUP, "type": "channel", "title": "News"}},
            Disposition.UNSUPPORTED,
            "channel post",
        ),
        ({"new_chat_members": [ALICE]}, Disposition.UNSUPPORTED, "new_chat_members"),
        ({"forum_topic_created": {"name": "x", "icon_color": 1}}, Disposition.UNSUPPORTED, None),
        (
            {"chat": PLAIN, "location": {"longitude": 1.0, "latitude": 2.0}},
            Disposition.UNSUPPORTED,
            "location",
        ),
        ({"rich_message": {"blocks": []}}, Disposition.UNSUPPORTED, "rich_message"),
        ({}, Disposition.UNSUPPORTED, "service message"),
    ],
)
def test_updates_that_are_not_messages_for_the_bot_are_ignored(
    fields: dict[str, Any], reason: Disposition, detail: str | None
) -> None:
    result = read(**fields)
    assert isinstance(result, IgnoredEvent)
    assert result.reason == reason
    assert detail is None or result.detail == detail


@pytest.mark.parametrize(
    ("update", "detail"),
    [
        ({"edited_message": message(text="/new")}, "edited command"),
        ({"edited_message": message(location={"longitude": 1, "latitude": 1})}, "location"),
        ({"edited_channel_post": message(text="x")}, "edited_channel_post"),
        ({"channel_post": message(text="x")}, "channel_post"),
        ({"message_generation_resumed": {"draft_id": 1}}, "message_generation_resumed"),
        ({}, "unknown update"),
    ],
)
def test_updates_that_are_no_messages(update: dict[str, Any], detail: str) -> None:
    assert meaning({"update_id": 9} | update) == IgnoredEvent(detail)


@pytest.mark.parametrize(
    ("chat", "name"),
    [
        ({"id": GROUP, "type": "supergroup", "title": "Team"}, "Team"),
        ({"id": -1009, "type": "channel", "title": "News", "username": "news"}, "News"),
    ],
)
def test_messages_sent_on_behalf_of_a_chat_have_the_chat_as_sender(
    chat: dict[str, Any], name: str
) -> None:
    stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    inbound = accepted(chat=PLAIN, text="@Parley_Bot hi", sender_chat=chat, **{"from": stand_in})
    assert (inbound.sender.user_id, inbound.sender.name) == (str(chat["id"]), name)
    assert not inbound.sender.is_bot
    assert inbound.is_addressed


FILE = {"file_id": "F", "file_unique_id": "U", "file_size": 12}


@pytest.mark.parametrize(
    ("fields", "attachment"),
    [
        (
            {
                "photo": [
                    FILE | {"file_id": "small", "width": 90, "height": 60},
                    FILE | {"width": 900, "height": 600},
                ]
            },
            Attachment(name="photo_U.jpg", mime="image/jpeg", size_bytes=12, kind="image", ref="F"),
        ),
        (
            {"document": FILE | {"file_name": "a.pdf", "mime_type": "application/pdf"}},
            Attachment(name="a.pdf", mime="application/pdf", size_bytes=12, ref="F"),
        ),
        (
            {"document": FILE | {"file_name": "../x\n/y.png", "mime_type": "image/png"}},
            Attachment(name=".._x _y.png", mime="image/png", size_bytes=12, kind="image", ref="F"),
        ),
        (
            {"document": {"file_id": "F", "file_unique_id": "U"}},
            Attachment(name="document", ref="F"),
        ),
        (
            {"voice": FILE | {"duration": 3}},
            Attachment(
                name="voice.ogg",
                mime="audio/ogg",
                size_bytes=12,
                kind="audio",
                ref="F",
                is_speech=True,
                duration_s=3,
            ),
        ),
        (
            {"animation": FILE | {"duration": 3, "width": 9, "height": 9}, "document": FILE},
            Attachment(
                name="animation.mp4",
                mime="video/mp4",
                size_bytes=12,
                kind="video",
                ref="F",
                duration_s=3,
            ),
        ),
    ],
)
def test_files_of_a_message_are_attached(fields: dict[str, Any], attachment: Attachment) -> None:
    assert accepted(**fields).attachments == (attachment,)


def test_caption_is_the_text() -> None:
    inbound = accepted(chat=PLAIN, caption="@parley_bot look", document=FILE)
    assert (inbound.text, inbound.is_addressed) == ("look", True)
    assert len(inbound.attachments) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "\x00\x1b[31m\x07red",
        "\ud83d broken \ude00",
        "@" * 5_000,
        "/" * 5_000,
        "/help" * 2_000,
        "\u202e@Parley_Bot",
        "[" * 32_000,
    ],
    ids=["1 MB", "controls", "surrogates", "at", "slash", "commands", "rtl", "brackets"],
)
def test_hostile_text_survives_the_journal(text: str) -> None:
    inbound = accepted(text=text, entities=[])
    assert decode(encode(inbound)) == inbound
    assert "\x00" not in inbound.text


@pytest.mark.parametrize(
    "entity",
    [
        {"offset": 0, "length": 0},
        {"offset": -4, "length": 3},
        {"offset": 2, "length": -1},
        {"offset": 1, "length": 1_000_000_000},
        {"offset": 1, "length": 1},
    ],
)
@pytest.mark.parametrize("kind", ["mention", "bot_command", "text_mention", "unheard_of"])
def test_wrong_entities_change_nothing(kind: str, entity: dict[str, int]) -> None:
    inbound = accepted(chat=PLAIN, text="😀 hi", entities=[{"type": kind} | entity])
    assert inbound.text.endswith("hi")
    assert not inbound.is_addressed


@given(
    st.text(st.characters(), max_size=60),
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["mention", "bot_command", "code", "text_mention"]),
                "offset": st.integers(-3, 80),
                "length": st.integers(-3, 80),
            }
        ),
        max_size=5,
    ),
)
def test_any_text_with_any_entities_is_read(text: str, entities: list[dict[str, Any]]) -> None:
    inbound = accepted(text=text or "x", entities=entities)
    assert decode(encode(inbound)) == inbound


def test_a_mention_by_another_bot_is_left_to_the_bus() -> None:
    other = BOT | {"id": 5, "username": "Other_Bot"}
    inbound = accepted(chat=PLAIN, text="@Parley_Bot hi", **{"from": other})
    assert (inbound.text, inbound.sender.user_id, inbound.sender.is_bot) == ("hi", "5", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "hi", "from": BOT | {"id": 5, "is_bot": []}},
        {"text": "hi", "media_group_id": 9},
        {"document": {"file_id": 5, "file_unique_id": "u", "file_size": {"a": 1}}},
        {"photo": [{"file_id": 5, "file_unique_id": "u", "width": 1, "height": 1, "file_size": "x"}]},
    ],
)  # fmt: skip
def test_fields_of_another_type_are_stored_as_they_are_read(fields: dict[str, Any]) -> None:
    inbound = accepted(**fields)
    assert decode(encode(inbound)) == inbound


@pytest.mark.parametrize(
    ("fields", "mentions_others"),
    [
        ({"text": "hi"}, False),
        ({"text": "@bob lunch?"}, True),
        (
            {
                "caption": "@bob look",
                "photo": [{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}],
            },
            True,
        ),
        (
            {
                "text": "Bob look",
                "entities": [
                    {"type": "text_mention", "offset": 0, "length": 3, "user": ALICE | {"id": 9}}
                ],
            },
            True,
        ),
        ({"text": "@parley_bot ask @bob"}, False),
    ],
)
def test_mentions_of_other_people_are_noted(fields: dict[str, Any], mentions_others: bool) -> None:
    assert accepted(chat=PLAIN, **fields).mentions_others is mentions_others
