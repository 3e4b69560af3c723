"""Reading a Telegram message: one row for every field of the newest Bot API. A new field fails this test."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from bots.common.events import IgnoredEvent
from bots.telegram.content import read_content
from bots.telegram.identity import NOBODY
from gateway.playground.telegram.chats import Wire
from gateway.playground.telegram.checks import specification, type_violations
from tests.bots.test_telegram_inbound import ALICE, BOT, PLAIN, PRIVATE, accepted, message, read

BOB = {"id": 1002, "is_bot": False, "first_name": "Bob"}
NEWS = {"id": -1009, "type": "channel", "title": "News"}
AT = 1_790_000_000  # 2026-09-21 14:13 UTC
ORIGIN = {"type": "user", "date": AT, "sender_user": BOB}
FILE = {"file_id": "f", "file_unique_id": "u", "file_size": 7}
SIZES = [FILE | {"file_id": "s", "width": 9, "height": 6}, FILE | {"width": 90, "height": 60}]
MOVING = FILE | {"width": 9, "height": 9, "duration": 3}
BOLD = [{"type": "bold", "offset": 0, "length": 3}]
STICKER: dict[str, Any] = FILE | {
    "type": "regular", "width": 9, "height": 9, "is_animated": False, "is_video": False,
    "emoji": "👍", "set_name": "Thumbs",
}  # fmt: skip
PLACE = {"latitude": 52.52, "longitude": 13.4}
POLL: dict[str, Any] = {
    "id": "1", "question": "Where?", "total_voter_count": 2, "is_closed": False, "is_anonymous": True,
    "type": "regular", "allows_multiple_answers": False, "allows_revoting": False, "members_only": False,
    "description": "For May", "description_entities": BOLD,
    "options": [
        {"text": "Rome", "voter_count": 2, "persistent_id": "1", "media": {"location": PLACE}},
        {"text": "Oslo", "voter_count": 0, "persistent_id": "2", "media": {"link": {"url": "https://o.no"}}},
    ],
}  # fmt: skip
CHECKLIST: dict[str, Any] = {
    "title": "Shopping", "title_entities": BOLD,
    "tasks": [
        {"id": 1, "text": "Buy milk", "completed_by_user": BOB, "completion_date": AT},
        {"id": 2, "text": "Buy tea", "text_entities": BOLD, "completion_date": 0},
    ],
}  # fmt: skip
GIFT = {"id": "g", "sticker": STICKER, "star_count": 50}
COMMUNITY = {"id": 1, "name": "Makers"}
UNIQUE = {
    "gift": {
        "gift_id": "g", "base_name": "Plush Pepe", "name": "PlushPepe-7", "number": 7,
        "model": {"name": "m", "sticker": STICKER, "rarity_per_mille": 1},
        "symbol": {"name": "s", "sticker": STICKER, "rarity_per_mille": 1},
        "backdrop": {"name": "b", "rarity_per_mille": 1, "colors": {
            "center_color": 1, "edge_color": 1, "symbol_color": 1, "text_color": 1}},
    },
    "origin": "transfer", "text": "For you", "entities": BOLD,
}  # fmt: skip
SENT = {"message_id": 33, "date": AT, "chat": PRIVATE, "from": BOB}

Kind = Literal["read", "named", "quoted", "around", "service"]
"""How the adapter treats a field. Read: as words, or as a file. Named: the message says that it is there. Quoted: the
person refers to it. Around: it adds nothing to the content. Service messages have no author who waits for an answer.
"""


@dataclass(frozen=True, kw_only=True)
class FieldCase:
    """A field of `Message`.

    Attributes:
        shown: The text for the agent, or why it gets none.
        files: The files of the message.
        beside: Further fields of the message.
    """

    field: str
    kind: Kind
    value: Wire
    shown: str
    files: tuple[str, ...] = ()
    beside: dict[str, Any] | None = None


def case(
    field: str,
    kind: Kind,
    value: Wire,
    shown: str,
    *files: str,
    beside: dict[str, Any] | None = None,
) -> FieldCase:
    return FieldCase(field=field, kind=kind, value=value, shown=shown, files=files, beside=beside)


REPLY = "what is asked again is in the reply"
WHO = "who and where, told by the sender, the chat and the topic"
LOOK = "how the app shows it"
NO_BUTTON = "the bot has no such button or payment"
ABOUT_CHAT = "an event of the chat"
POST_EVENT = "what became of a post that admins decide about"

FIELDS = [
    case("message_id", "around", 56, WHO),
    case("message_thread_id", "around", 4, WHO),
    case("direct_messages_topic", "around", {"topic_id": 1}, WHO),
    case("from", "around", ALICE, WHO),
    case("sender_chat", "around", NEWS, WHO),
    case("sender_boost_count", "around", 1, WHO),
    case("sender_business_bot", "around", BOT, WHO),
    case("sender_tag", "around", "boss", WHO),
    case("receiver_user", "around", ALICE, "of ephemeral messages: no command of the bot is one"),
    case("ephemeral_message_id", "around", 1, "of ephemeral messages: no command of the bot is one"),
    case("date", "around", AT, WHO),
    case("guest_query_id", "around", "q", "the bot is no guest bot"),
    case("business_connection_id", "around", "b", "the bot is connected to no business account"),
    case("chat", "around", PRIVATE, WHO),
    case("is_topic_message", "around", True, WHO),
    case("is_automatic_forward", "around", True, "what a channel posts is for its readers",
         beside={"text": "@Parley_Bot hi"}),
    case("via_bot", "around", BOT | {"id": 5}, "what the person chose of it is the message"),
    case("guest_bot_caller_user", "around", ALICE, "the bot is no guest bot"),
    case("guest_bot_caller_chat", "around", NEWS, "the bot is no guest bot"),
    case("edit_date", "around", AT, WHO),
    case("has_protected_content", "around", True, LOOK),
    case("is_from_offline", "around", True, WHO),
    case("is_paid_post", "around", True, WHO),
    case("media_group_id", "around", "a", "joins an album"),
    case("author_signature", "around", "Ann", WHO),
    case("paid_star_count", "around", 5, WHO),
    case("link_preview_options", "around", {"is_disabled": True}, LOOK),
    case("effect_id", "around", "e", LOOK),
    case("show_caption_above_media", "around", True, LOOK),
    case("has_media_spoiler", "around", True, LOOK),
    case("forward_origin", "quoted", ORIGIN, "[Forwarded]\n> Bob: hi"),
    case("reply_to_message", "quoted", SENT | {"text": "Rome?"}, "> Bob: Rome?"),
    case("external_reply", "quoted", {"origin": ORIGIN, "location": PLACE},
         "> Bob: [Location: 52.520000, 13.400000]"),
    case("quote", "quoted", {"text": "me?", "position": 2, "is_manual": True, "entities": BOLD}, "> Bob: **me?**",
         beside={"reply_to_message": SENT | {"text": "Rome?"}}),
    case("reply_to_story", "quoted", {"chat": NEWS, "id": 1}, "> [Not readable here: a story by News]"),
    case("reply_to_checklist_task_id", "quoted", 2, "> Bob: [Checklist: **Sho**pping]\n> - [ ] **Buy** tea",
         beside={"reply_to_message": SENT | {"checklist": CHECKLIST}}),
    case("reply_to_poll_option_id", "quoted", "2",
         "> Bob: [Poll: Where?]\n> **For** May\n> - Oslo https://o.no",
         beside={"reply_to_message": SENT | {"poll": POLL}}),
    case("text", "read", "Hello", "Hello"),
    case("entities", "read", BOLD, "**hel**lo", beside={"text": "hello"}),
    case("caption", "read", "Look", "Look", "photo_u.jpg", beside={"photo": SIZES}),
    case("caption_entities", "read", BOLD, "**Loo**k", "photo_u.jpg", beside={"photo": SIZES, "caption": "Look"}),
    case("rich_message", "read",
         {"blocks": [{"type": "heading", "text": "Plan", "size": 2}, {"type": "paragraph", "text": ["a ", {
             "type": "bold", "text": "b"}]}]}, "## Plan\n\na **b**"),
    case("animation", "read", MOVING, "", "animation.mp4", beside={"document": FILE}),
    case("audio", "read", FILE | {"duration": 3}, "", "audio.mp3"),
    case("document", "read", FILE | {"file_name": "a.pdf", "mime_type": "application/pdf"}, "", "a.pdf"),
    case("live_photo", "read", MOVING | {"photo": [FILE | {"file_id": "p", "width": 1, "height": 1}]}, "",
         "photo_u.jpg", "live_photo.mp4", beside={"photo": SIZES}),
    case("photo", "read", SIZES, "", "photo_u.jpg"),
    case("video", "read", MOVING, "", "video.mp4"),
    case("video_note", "read", FILE | {"length": 9, "duration": 3}, "", "video_note.mp4"),
    case("voice", "read", FILE | {"duration": 3}, "", "voice.ogg"),
    case("sticker", "read", STICKER, "[Sticker: 👍 from Thumbs]", "sticker_u.webp"),
    case("paid_media", "named",
         {"star_count": 5, "paid_media": [{"type": "photo", "photo": SIZES}, {"type": "preview"}]},
         "[Not readable here: paid media (5 Telegram Stars)]", "photo_u.jpg"),
    case("story", "named", {"chat": NEWS, "id": 3}, "[Not readable here: a story by News]"),
    case("checklist", "read", CHECKLIST,
         "[Checklist: **Sho**pping]\n- [x] Buy milk (done by Bob)\n- [ ] **Buy** tea"),
    case("contact", "read", {"phone_number": "+491", "first_name": "Zed", "vcard": "EMAIL:z@y.de"},
         "[Contact: Zed, +491]\nEMAIL:z@y.de"),
    case("dice", "read", {"emoji": "🎲", "value": 5}, "[🎲 5]"),
    case("game", "read",
         {"title": "Chess", "description": "Mate", "photo": SIZES, "text": "Ann 7", "text_entities": BOLD},
         "[Game: Chess]\nMate\n**Ann** 7", "photo_u.jpg"),
    case("poll", "read", POLL,
         "[Poll: Where?]\n**For** May\n- Rome (2 votes) [Location: 52.520000, 13.400000]\n- Oslo https://o.no"),
    case("venue", "read", {"location": PLACE, "title": "Zoo", "address": "Street 1"},
         "[Place: Zoo, Street 1 (52.520000, 13.400000)]", beside={"location": PLACE}),
    case("location", "read", PLACE, "[Location: 52.520000, 13.400000]"),
    case("invoice", "read",
         {"title": "Tea", "description": "Green", "start_parameter": "", "currency": "EUR", "total_amount": 450},
         "[Invoice: Tea, 450 in the smallest units of EUR]\nGreen"),
    case("giveaway", "read",
         {"chats": [NEWS], "winners_selection_date": AT, "winner_count": 1, "prize_description": "a book"},
         "[Giveaway: by News, 1 winner, a book, 2026-09-21 14:13 UTC]"),
    case("giveaway_winners", "read",
         {"chat": NEWS, "giveaway_message_id": 1, "winners_selection_date": AT, "winner_count": 1, "winners": [BOB],
          "prize_star_count": 500},
         "[Winners of a giveaway: by News, 1 winner, 500 Telegram Stars, 2026-09-21 14:13 UTC]\n- Bob"),
    case("gift", "read", {"gift": GIFT, "text": "For you", "entities": BOLD},
         "[Gift: 👍, 50 Telegram Stars]\n**For** you"),
    case("unique_gift", "read", UNIQUE, "[Gift: Plush Pepe #7]\n**For** you"),
    case("gift_upgrade_sent", "read", {"gift": GIFT}, "[Gift: 👍, 50 Telegram Stars]"),
    case("suggested_post_info", "read",
         {"state": "pending", "price": {"currency": "TON", "amount": 1_500_000_000}, "send_date": AT},
         "Buy this\n[Suggested post: pending, 1.5 TON, 2026-09-21 14:13 UTC]", beside={"text": "Buy this"}),
    case("reply_markup", "read",
         {"inline_keyboard": [[{"text": "Open", "url": "https://a.de"}, {"text": "Mute", "callback_data": "x"}]]},
         "Alert\n[Open](https://a.de)", beside={"text": "Alert"}),
    case("new_chat_members", "service", [ALICE], ABOUT_CHAT),
    case("left_chat_member", "service", ALICE, ABOUT_CHAT),
    case("chat_owner_left", "service", {}, ABOUT_CHAT),
    case("chat_owner_changed", "service", {"new_owner": ALICE}, ABOUT_CHAT),
    case("new_chat_title", "service", "Crew", ABOUT_CHAT),
    case("new_chat_photo", "service", SIZES, ABOUT_CHAT),
    case("delete_chat_photo", "service", True, ABOUT_CHAT),
    case("group_chat_created", "service", True, ABOUT_CHAT),
    case("supergroup_chat_created", "service", True, ABOUT_CHAT),
    case("channel_chat_created", "service", True, ABOUT_CHAT),
    case("message_auto_delete_timer_changed", "service", {"message_auto_delete_time": 60}, ABOUT_CHAT),
    case("migrate_to_chat_id", "service", -1002, "handled as a migration"),
    case("migrate_from_chat_id", "service", -4002, "handled as a migration"),
    case("pinned_message", "service", SENT | {"text": "x"}, ABOUT_CHAT),
    case("successful_payment", "service",
         {"currency": "XTR", "total_amount": 1, "invoice_payload": "", "telegram_payment_charge_id": "",
          "provider_payment_charge_id": ""}, NO_BUTTON),
    case("refunded_payment", "service",
         {"currency": "XTR", "total_amount": 1, "invoice_payload": "", "telegram_payment_charge_id": ""}, NO_BUTTON),
    case("users_shared", "service", {"request_id": 1, "users": [{"user_id": 5}]}, NO_BUTTON),
    case("chat_shared", "service", {"request_id": 1, "chat_id": 5}, NO_BUTTON),
    case("connected_website", "service", "a.example", NO_BUTTON),
    case("write_access_allowed", "service", {"web_app_name": "x"}, "the first message follows"),
    case("passport_data", "service", {"data": [], "credentials": {"data": "", "hash": "", "secret": ""}}, NO_BUTTON),
    case("proximity_alert_triggered", "service", {"traveler": ALICE, "watcher": BOB, "distance": 5}, ABOUT_CHAT),
    case("boost_added", "service", {"boost_count": 1}, ABOUT_CHAT),
    case("chat_background_set", "service",
         {"type": {"type": "chat_theme", "theme_name": "x"}}, ABOUT_CHAT),
    case("checklist_tasks_done", "service", {"marked_as_done_task_ids": [1]}, "the checklist says what is done"),
    case("checklist_tasks_added", "service", {"tasks": CHECKLIST["tasks"]}, "the checklist says what is done"),
    case("community_chat_added", "service", {"community": COMMUNITY}, ABOUT_CHAT),
    case("community_chat_joined", "service", {"community": COMMUNITY}, ABOUT_CHAT),
    case("community_chat_removed", "service", {}, ABOUT_CHAT),
    case("direct_message_price_changed", "service", {"are_direct_messages_enabled": True}, ABOUT_CHAT),
    case("forum_topic_created", "service", {"name": "Plans", "icon_color": 1}, "its name is remembered"),
    case("forum_topic_edited", "service", {"name": "Plans"}, "its name is remembered"),
    case("forum_topic_closed", "service", {}, ABOUT_CHAT),
    case("forum_topic_reopened", "service", {}, ABOUT_CHAT),
    case("general_forum_topic_hidden", "service", {}, ABOUT_CHAT),
    case("general_forum_topic_unhidden", "service", {}, ABOUT_CHAT),
    case("giveaway_created", "service", {}, ABOUT_CHAT),
    case("giveaway_completed", "service", {"winner_count": 1}, ABOUT_CHAT),
    case("managed_bot_created", "service", {"bot": BOT}, "the bot manages no other bots"),
    case("paid_message_price_changed", "service", {"paid_message_star_count": 1}, ABOUT_CHAT),
    case("poll_option_added", "service", {"option_persistent_id": "1", "option_text": "x"}, ABOUT_CHAT),
    case("poll_option_deleted", "service", {"option_persistent_id": "1", "option_text": "x"}, ABOUT_CHAT),
    case("suggested_post_approved", "service", {"send_date": AT}, POST_EVENT),
    case("suggested_post_approval_failed", "service", {"price": {"currency": "XTR", "amount": 5}}, POST_EVENT),
    case("suggested_post_declined", "service", {}, POST_EVENT),
    case("suggested_post_paid", "service", {"currency": "XTR"}, POST_EVENT),
    case("suggested_post_refunded", "service", {"reason": "post_deleted"}, POST_EVENT),
    case("video_chat_scheduled", "service", {"start_date": AT}, ABOUT_CHAT),
    case("video_chat_started", "service", {}, ABOUT_CHAT),
    case("video_chat_ended", "service", {"duration": 5}, ABOUT_CHAT),
    case("video_chat_participants_invited", "service", {"users": [ALICE]}, ABOUT_CHAT),
    case("web_app_data", "service", {"data": "x", "button_text": "y"}, NO_BUTTON),
]  # fmt: skip
BY_FIELD = {row.field: row for row in FIELDS}


def fields_of(name: str) -> dict[str, list[str]]:
    return {field["name"]: field["types"] for field in specification()["types"][name]["fields"]}


def test_every_field_of_the_newest_bot_api_has_a_row() -> None:
    assert specification()["version"] == "Bot API 10.3"
    assert BY_FIELD.keys() == fields_of("Message").keys()
    assert len(BY_FIELD) == len(FIELDS)


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.field)
def test_a_row_is_as_telegram_sends_it(row: FieldCase) -> None:
    for field, value in {row.field: row.value, **(row.beside or {})}.items():
        (kind,) = fields_of("Message")[field]
        assert type_violations(kind, value, field) == []


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row.field)
def test_a_field_is_read_or_ignored_for_a_reason(row: FieldCase) -> None:
    fields = {row.field: row.value, **(row.beside or {})}
    if row.kind == "service":
        ignored = read(**fields)
        if isinstance(ignored, IgnoredEvent):
            assert (ignored.detail, bool(row.shown)) == (row.field, True)
        else:
            assert row.shown == "handled as a migration"
        return
    words = {} if row.kind in {"read", "named"} else {"text": "hi"}
    inbound = accepted(**{**words, **fields})
    shown = {
        "around": ("hi", ""),
        "quoted": ("" if row.field == "forward_origin" else "hi", row.shown),
    }.get(row.kind, (row.shown, ""))
    assert (inbound.text, inbound.quoted) == shown
    assert tuple(file.name for file in inbound.attachments) == row.files


@pytest.mark.parametrize("field", fields_of("ExternalReplyInfo"))
def test_a_message_of_another_chat_is_read_like_any_other(field: str) -> None:
    around = {"origin", "chat", "message_id", "link_preview_options", "has_media_spoiler"}
    row = BY_FIELD.get(field)
    if field in around or row is None:
        assert field in around
        return
    inbound = accepted(text="?", external_reply={"origin": ORIGIN, field: row.value})
    shown = "\n".join(filter(None, (row.shown, *(f"[File: {name}]" for name in row.files))))
    assert inbound.quoted == "> Bob: " + shown.replace("\n", "\n> ")
    assert tuple(file.name for file in inbound.attachments) == row.files


def test_media_of_what_is_replied_to_come_along_everywhere() -> None:
    """The photos are from another chat, from the same person earlier, and from the bot, in private and in a topic."""
    said = {"message_id": 3, "date": AT, "photo": SIZES, "caption": "our office"}
    quoted = ": our office\n> [File: photo_u.jpg]"
    for chat, author, name in (
        (PRIVATE, ALICE, "Alice Liddell"),
        (PRIVATE, BOT, "You"),
        (PLAIN, BOB, "Bob"),
        (PLAIN, ALICE, "Alice Liddell"),
        (PLAIN, BOT, "You"),
    ):
        replied = said | {"chat": chat, "from": author}
        inbound = accepted(chat=chat, text="@Parley_Bot why?", reply_to_message=replied)
        assert (inbound.text, inbound.quoted) == ("why?", f"> {name}{quoted}")
        assert [file.ref for file in inbound.attachments] == ["f"]


def test_a_quote_of_another_chat_keeps_what_else_is_there() -> None:
    quote = {"text": "us", "position": 0}
    media = {"star_count": 5, "paid_media": [{"type": "preview"}]}
    elsewhere = {"origin": ORIGIN, "photo": SIZES, "paid_media": media}
    inbound = accepted(text="?", external_reply=elsewhere, quote=quote)
    assert inbound.quoted == (
        "> Bob: us\n> [Not readable here: paid media (5 Telegram Stars)]\n> [File: photo_u.jpg]"
    )


def test_files_of_an_album_without_words_quote_nothing() -> None:
    replied = SENT | {"text": "Which?"}
    inbound = accepted(photo=SIZES, media_group_id="a", reply_to_message=replied)
    assert inbound.quoted == ""
    worded = accepted(photo=SIZES, media_group_id="a", caption="x", reply_to_message=replied)
    assert worded.quoted == accepted(photo=SIZES, reply_to_message=replied).quoted
    assert worded.quoted == "> Bob: Which?"


def test_a_forwarded_message_keeps_its_origin_where_it_is_replied_to() -> None:
    origin = {
        "type": "channel",
        "date": AT,
        "chat": NEWS,
        "message_id": 5,
        "author_signature": "Ann",
    }
    replied = SENT | {"text": "It rains.", "forward_origin": origin}
    inbound = accepted(text="True?", reply_to_message=replied)
    assert inbound.quoted == "> Bob: [Forwarded]\n> > News (Ann): It rains."


@pytest.mark.parametrize(
    ("sticker", "files"),
    [
        ({}, ["sticker_u.webp"]),
        ({"is_animated": True}, []),
        ({"is_video": True}, []),
    ],
)
def test_stickers_that_are_pictures_are_seen(sticker: dict[str, Any], files: list[str]) -> None:
    inbound = accepted(sticker=STICKER | sticker)
    assert inbound.text == "[Sticker: 👍 from Thumbs]"
    assert [file.name for file in inbound.attachments] == files


def test_a_quiz_tells_its_answer() -> None:
    quiz = POLL | {
        "type": "quiz", "is_closed": True, "correct_option_ids": [0], "explanation": "So",
        "media": {"photo": SIZES}, "description": None,
    }  # fmt: skip
    inbound = accepted(poll=quiz)
    assert inbound.text.split("\n") == [
        "[Quiz, closed: Where?]",
        "[File: photo_u.jpg]",
        "- Rome (correct, 2 votes) [Location: 52.520000, 13.400000]",
        "- Oslo https://o.no",
        "[Explanation: So]",
    ]
    assert len(inbound.attachments) == 1


# Broken parts.

BROKEN: list[tuple[str, Wire, str]] = [
    ("poll", {"question": 7}, "[Not readable here: a poll]"),
    ("poll", 5, "[Not readable here: a poll]"),
    ("checklist", [], "[Not readable here: a checklist]"),
    ("location", {"latitude": "north", "longitude": 1}, "[Not readable here: a location]"),
    ("venue", {"title": "Zoo", "address": "x"}, "[Not readable here: a place]"),
    ("contact", {"phone_number": None, "first_name": 5}, "[Not readable here: a contact]"),
    ("dice", {"emoji": "🎲", "value": "six"}, "[Not readable here: a die]"),
    ("photo", [], "[Not readable here: a photo]"),
    ("photo", [{"width": 1}], "[Not readable here: a photo]"),
    ("voice", "x", "[Not readable here: a voice message]"),
    ("document", {"file_name": "a.pdf"}, "[Not readable here: a file]"),
    ("sticker", {"emoji": "👍"}, "[Not readable here: a sticker]"),
    ("paid_media", {"paid_media": [{"type": "photo"}]}, "[Not readable here: paid media]"),
    ("game", 1, "[Not readable here: a game]"),
    ("gift", {"text": "x"}, "[Not readable here: a gift]"),
    ("reply_markup", {"inline_keyboard": [[{"text": "x", "url": 5}]]}, "x"),
    ("text", {"a": 1}, "[Not readable here: the text]"),
    ("caption", 5, "[Not readable here: the caption]"),
    ("rich_message", {"blocks": [{"type": "hologram"}]}, "[Not readable here: hologram]"),
]


@pytest.mark.parametrize(("field", "value", "shown"), BROKEN)
def test_one_unreadable_part_costs_no_other(field: str, value: Wire, shown: str) -> None:
    inbound = accepted(**{field: value})
    assert (inbound.text, inbound.sender.user_id, inbound.key.chat) == (shown, "1001", "1001")
    if field not in {"text", "caption", "rich_message"}:
        own = accepted(**{"text": "see", field: value})
        assert own.text == f"see\n{shown}"
    replied = SENT | {field: value}
    asked = accepted(text="why?", reply_to_message=replied)
    assert (asked.text, asked.quoted) == ("why?", f"> Bob: {shown}")


@pytest.mark.parametrize(
    ("fields", "quoted"),
    [
        ({"reply_to_message": 5}, "> [Not readable here: the message that is replied to]"),
        ({"reply_to_message": SENT | {"from": [], "text": "x"}}, "> x"),
        ({"reply_to_message": SENT | {"chat": None, "text": "x"}}, "> Bob: x"),
        ({"external_reply": "x"}, "> [Not readable here: the message that is replied to]"),
        ({"external_reply": {"location": PLACE}}, "> elsewhere: [Location: 52.520000, 13.400000]"),
        ({"external_reply": {"origin": {"type": "new", "date": 1}, "dice": {"emoji": "🎲", "value": 1}}},
         "> elsewhere: [🎲 1]"),
        ({"reply_to_story": 5}, "> [Not readable here: a story]"),
        ({"quote": 7, "reply_to_message": SENT | {"text": "x"}}, "> Bob: x"),
        ({"quote": {"text": 7, "is_manual": True}, "reply_to_message": SENT | {"text": "x"}}, "> Bob: x"),
        ({"reply_to_checklist_task_id": [], "reply_to_message": SENT | {"checklist": CHECKLIST}},
         "> Bob: [Checklist: **Sho**pping]\n> - [x] Buy milk (done by Bob)\n> - [ ] **Buy** tea"),
    ],
)  # fmt: skip
def test_an_unreadable_reply_costs_no_words(fields: dict[str, Any], quoted: str) -> None:
    inbound = accepted(text="why?", **fields)
    assert (inbound.text, inbound.quoted, inbound.sender.user_id) == ("why?", quoted, "1001")


@pytest.mark.parametrize(
    "fields",
    [
        {"entities": 5},
        {"entities": [5, None, {}, {"type": "bold"}, {"type": "bold", "offset": "0", "length": 1}]},
        {"entities": [{"type": "hologram", "offset": 0, "length": 2}]},
        {"entities": [{"type": "ours", "offset": 0, "length": 2}]},
        {"entities": [{"type": "text_link", "offset": 0, "length": 2}]},
        {"entities": [{"type": "text_mention", "offset": 0, "length": 2, "user": 5}]},
        {"via_bot": 5, "forward_origin": None, "edit_date": "x", "message_thread_id": "x"},
        {"date": 10**18},
        {"date": None},
        {"chat": PRIVATE | {"title": 5, "photo": []}},
        {"from": {"id": 1001, "first_name": 5, "language_code": []}},
        {"is_topic_message": "yes"},
        {"link_preview_options": 7, "new_field_of_a_newer_bot_api": {"a": [1]}},
    ],
)
def test_odd_fields_around_a_text_change_nothing(fields: dict[str, Any]) -> None:
    inbound = accepted(text="hi there", **fields)
    assert (inbound.text, inbound.quoted, inbound.sender.user_id) == ("hi there", "", "1001")


def test_a_poll_of_a_server_before_bot_api_10_is_read() -> None:
    """python-telegram-bot refuses a poll without `members_only`, and with it the whole update."""
    old = {
        name: value
        for name, value in POLL.items()
        if name not in ("members_only", "allows_revoting")
    }
    inbound = accepted(text="Where?", reply_to_message=SENT | {"poll": old})
    assert inbound.quoted.startswith("> Bob: [Poll: Where?]")


def test_a_part_of_a_poll_that_is_broken_leaves_the_others() -> None:
    poll = POLL | {
        "options": [5, {"text": "Rome"}, {"text": 7}, {"text": "Oslo", "media": {"photo": 5}}]
    }
    content = read_content(message(poll=poll), NOBODY)
    assert content.text.split("\n")[0] == "[Poll: Where?]"
    assert "- Rome" in content.text
    assert "- Oslo [Not readable here: a photo]" in content.text


def test_nesting_without_end_is_unreadable_and_harms_nothing() -> None:
    deep: Wire = "x"
    for _ in range(300):
        deep = {"type": "bold", "text": [deep]}
    assert accepted(rich_message={"blocks": [{"type": "paragraph", "text": deep}]}).text == (
        "[Not readable here: a rich message]"
    )
    poll: Wire = {}
    for _ in range(900):
        poll = {"question": "x", "media": {"poll": poll}}
    assert accepted(poll=poll).text.startswith("[Poll: x]")
