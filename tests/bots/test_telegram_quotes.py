"""Parts of a message besides its own text: replies, quotations, forwards, hidden links, locations."""

from typing import Any

import pytest

from bots.common.events import IgnoredEvent
from bus.messages import InboundMessage
from bus.platform import Disposition
from gateway.playground.telegram.chats import Wire
from tests.bots.test_telegram_inbound import (
    ALICE,
    BOT,
    CREATED,
    FORUM,
    PLAIN,
    PRIVATE,
    TOPIC,
    accepted,
    meaning,
    message,
    read,
    replied,
)

BOB = {"id": 1002, "is_bot": False, "first_name": "Bob"}
NEWS = {"id": -1009, "type": "channel", "title": "News"}
PHOTO = [{"file_id": "p", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 5}]
LINK = {"type": "text_link", "offset": 4, "length": 4, "url": "https://a.example/docs"}
TAP = "@Parley_Bot translate this"


def wordless(**fields: Wire) -> dict[str, Any]:
    return message(**{"message_id": 33, "chat": PLAIN, "from": BOB} | fields)


def group(**fields: Wire) -> InboundMessage:
    return accepted(**{"chat": PLAIN, "text": TAP} | fields)


@pytest.mark.parametrize(
    ("url", "label", "text"),
    [
        ("https://a.example/docs", "docs", "See [docs](https://a.example/docs) now"),
        ("https://a.example/", "a.example", "See a.example now"),
        ("https://a.example/x", "https://a.example/x", "See https://a.example/x now"),
        ("https://evil.example/?bank.com", "bank.com", None),
    ],
)
def test_the_address_behind_a_label_is_kept(url: str, label: str, text: str | None) -> None:
    entity = {"type": "text_link", "offset": 4, "length": len(label), "url": url}
    inbound = accepted(text=f"See {label} now", entities=[entity])
    assert inbound.prompt == (text or f"See [{label}]({url}) now")


def test_addresses_keep_mentions_and_other_text_where_they_were() -> None:
    text = "😀 @Parley_Bot see docs, 😀"
    entities = [
        {"type": "mention", "offset": 3, "length": 11},
        LINK | {"offset": 19, "length": 4},
        {"type": "bold", "offset": 19, "length": 4},
    ]
    inbound = accepted(chat=PLAIN, text=text, entities=entities)
    assert inbound.prompt == "😀 see [**docs**](https://a.example/docs), 😀"


def test_another_persons_message_is_quoted() -> None:
    said = replied(text="See docs\nat 9", entities=[LINK], **{"from": BOB})
    inbound = group(reply_to_message=said)
    assert inbound.prompt == ("translate this\n\n> Bob: See [docs](https://a.example/docs)\n> at 9")
    assert inbound.replies_to == ("33",)


def test_another_persons_message_is_quoted_in_a_topic() -> None:
    said = replied(chat=FORUM, **{"from": BOB}, **TOPIC)
    assert group(chat=FORUM, reply_to_message=said, **TOPIC).prompt == (
        "translate this\n\n> Bob: before"
    )
    assert group(chat=FORUM, reply_to_message=CREATED, **TOPIC).prompt == "translate this"


def test_files_of_another_person_are_taken_along() -> None:
    said = wordless(photo=PHOTO, caption="our\noffice")
    inbound = group(reply_to_message=said)
    assert [file.ref for file in inbound.attachments] == ["p"]
    assert inbound.prompt == "translate this\n\n> Bob: our\n> office\n> [File: photo_u.jpg]"


def test_a_channel_is_quoted_by_its_name() -> None:
    said = replied(sender_chat=NEWS, **{"from": {"id": 777000, "is_bot": False, "first_name": "T"}})
    assert group(reply_to_message=said).prompt == "translate this\n\n> News: before"


@pytest.mark.parametrize(
    ("fields", "quoted"),
    [
        ({"chat": PLAIN, "reply_to_message": replied(**{"from": BOT})}, "> You: before"),
        ({"reply_to_message": replied(chat=PRIVATE, **{"from": BOT})}, "> You: before"),
        (
            {"reply_to_message": replied(chat=PRIVATE, **{"from": ALICE})},
            "> Alice Liddell: before",
        ),
    ],
)
def test_a_message_that_a_person_replies_to_is_quoted_whoever_wrote_it(
    fields: dict[str, Any], quoted: str
) -> None:
    """The conversation may no longer contain it: after `/new`, or in another topic."""
    inbound = accepted(text="go on", **fields)
    assert (inbound.text, inbound.quoted) == ("go on", quoted)


def test_a_long_answer_of_the_bot_is_shortened() -> None:
    answer = replied(text="word " * 2_400, **{"from": BOT})
    quoted = group(reply_to_message=answer).quoted
    assert quoted.startswith("> You: word word")
    assert quoted.endswith("word…")
    assert len(quoted) < 10_050
    said = replied(text="word " * 2_400, **{"from": BOB})
    assert len(group(reply_to_message=said).quoted) > 11_900


def test_selected_words_are_quoted_whoever_wrote_them() -> None:
    quote = {"text": "fore", "position": 2, "is_manual": True}
    answer = replied(**{"from": BOT})
    assert group(text="Why?", reply_to_message=answer, quote=quote).prompt == "Why?\n\n> You: fore"
    said = replied(text="before", **{"from": BOB})
    assert group(reply_to_message=said, quote=quote).prompt == "translate this\n\n> Bob: fore"


def test_messages_of_other_chats_are_quoted() -> None:
    origin = {"type": "channel", "date": 1, "chat": NEWS, "message_id": 5}
    elsewhere = {"origin": origin, "chat": NEWS, "message_id": 5}
    quote = {"text": "It rains.", "position": 0}
    inbound = accepted(text="True?", external_reply=elsewhere, quote=quote)
    assert inbound.prompt == "True?\n\n> News: It rains."


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ({"type": "user", "date": 1, "sender_user": BOB}, "Bob"),
        ({"type": "hidden_user", "date": 1, "sender_user_name": "Some\nbody"}, "Some body"),
        ({"type": "chat", "date": 1, "sender_chat": PLAIN}, "Team"),
        ({"type": "channel", "date": 1, "chat": NEWS, "message_id": 5}, "News"),
    ],
)
def test_forwarded_words_are_somebody_elses(origin: dict[str, Any], name: str) -> None:
    assert accepted(text="Hi", forward_origin=origin).prompt == f"[Forwarded]\n> {name}: Hi"
    photo = accepted(photo=PHOTO, forward_origin=origin)
    assert photo.prompt == f"[Forwarded]\n> {name}: [File: photo_u.jpg]"
    assert (len(photo.attachments), photo.is_forwarded) == (1, True)
    # A command that another person wrote is not run here.
    assert accepted(text="/new", forward_origin=origin).prompt.endswith(": /new")
    assert accepted(text="/new@Other_Bot", forward_origin=origin).prompt.endswith("/new@Other_Bot")
    group_command = accepted(chat=PLAIN, text="/new", forward_origin=origin)
    assert not group_command.is_addressed


@pytest.mark.parametrize("text", ["/new", "/help@Parley_Bot", "@Parley_Bot /help"])
def test_a_command_quotes_nothing(text: str) -> None:
    said = replied(photo=PHOTO, **{"from": BOB})
    assert group(text=text, reply_to_message=said).prompt in ("/new", "/help")


POLL_OPTION = {"text": "Rome", "voter_count": 0, "persistent_id": "1"}
PLACE = {"latitude": 52.5200066, "longitude": -13.404954}
SHOWN: list[tuple[dict[str, Any], str]] = [
    ({"location": PLACE}, "[Location: 52.520007, -13.404954]"),
    (
        {
            "location": PLACE,
            "venue": {"location": PLACE, "title": "Zoo", "address": "Street 1"},
        },
        "[Place: Zoo, Street 1 (52.520007, -13.404954)]",
    ),
    (
        {"contact": {"phone_number": "+491", "first_name": "Zed", "last_name": "Y"}},
        "[Contact: Zed Y, +491]",
    ),
    (
        {
            "poll": {
                "id": "1",
                "question": "Where?",
                "options": [POLL_OPTION],
                "total_voter_count": 0,
                "is_closed": False,
                "is_anonymous": True,
                "type": "regular",
                "allows_multiple_answers": False,
                "allows_revoting": False,
                "members_only": False,
            }
        },
        "[Poll: Where?]\n- Rome",
    ),
    ({"dice": {"emoji": "🎲", "value": 5}}, "[🎲 5]"),
    (
        {
            "sticker": {
                "file_id": "s",
                "file_unique_id": "s",
                "type": "regular",
                "width": 1,
                "height": 1,
                "is_animated": True,
                "is_video": False,
                "emoji": "👍",
            }
        },
        "[Sticker: 👍]",
    ),
    ({"story": {"chat": NEWS, "id": 3}}, "[Not readable here: a story by News]"),
]


@pytest.mark.parametrize(("fields", "text"), SHOWN)
def test_a_message_without_text_is_described_in_a_private_chat(
    fields: dict[str, Any], text: str
) -> None:
    assert accepted(**fields).prompt == text
    assert isinstance(read(chat=PLAIN, **fields), IgnoredEvent)
    assert isinstance(read(chat=PLAIN, reply_to_message=replied(), **fields), IgnoredEvent)


@pytest.mark.parametrize(("fields", "text"), SHOWN)
def test_a_message_without_text_can_answer_the_bot_in_a_group(
    fields: dict[str, Any], text: str
) -> None:
    answer = replied(**{"from": BOT})
    inbound = accepted(chat=PLAIN, reply_to_message=answer, **fields)
    assert (inbound.text, inbound.quoted, inbound.is_addressed) == (text, "> You: before", True)


@pytest.mark.parametrize(("fields", "text"), SHOWN)
def test_people_can_ask_about_a_message_without_text_in_a_group(
    fields: dict[str, Any], text: str
) -> None:
    said = wordless(**fields)
    lines = "\n> ".join(text.split("\n"))
    assert group(reply_to_message=said).prompt == f"translate this\n\n> Bob: {lines}"


def test_a_place_that_moves_asks_nothing_again() -> None:
    assert isinstance(
        meaning({"update_id": 9, "edited_message": message(location=PLACE)}), IgnoredEvent
    )


def test_a_mention_alone_is_about_what_it_replies_to_and_else_asks_for_help() -> None:
    said = wordless(text="before")
    assert group(text="@Parley_Bot", reply_to_message=said).prompt == "> Bob: before"
    shown = wordless(photo=PHOTO)
    inbound = group(text="@Parley_Bot", reply_to_message=shown)
    assert (inbound.prompt, len(inbound.attachments)) == ("> Bob: [File: photo_u.jpg]", 1)
    assert group(text="@Parley_Bot").prompt == "/help"
    assert accepted(text="@Parley_Bot").prompt == "/help"
    answer = message(**{"message_id": 33, "chat": PLAIN, "from": BOT, "text": "before"})
    assert group(text="@Parley_Bot", reply_to_message=answer).prompt == "> You: before"


POST = {
    "chat": PLAIN,
    "from": {"id": 777000, "is_bot": False, "first_name": "Telegram"},
    "sender_chat": NEWS,
    "is_automatic_forward": True,
    "forward_origin": {"type": "channel", "date": 1, "chat": NEWS, "message_id": 5},
}


@pytest.mark.parametrize("text", ["It rains.", "/help"])
def test_a_channels_post_is_not_for_the_bot_in_its_discussion_group(text: str) -> None:
    """`group_policy: open` would answer each post."""
    ignored = read(**POST | {"text": text})
    assert isinstance(ignored, IgnoredEvent)
    assert ignored.reason is Disposition.NOT_ADDRESSED


def test_a_channel_may_ask_the_bot_of_its_discussion_group() -> None:
    inbound = accepted(**POST | {"text": "@Parley_Bot sum this up"})
    assert (inbound.prompt, inbound.is_addressed) == ("sum this up", True)
    assert inbound.sender.name == "News"


VOICE = {"file_id": "v", "file_unique_id": "w", "duration": 7, "mime_type": "audio/ogg"}
FROM_BOB = {"type": "user", "date": 1, "sender_user": BOB}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"voice": VOICE}, (True, 7, False)),
        ({"audio": VOICE | {"mime_type": "audio/mpeg"}}, (True, 7, False)),
        ({"video_note": {k: VOICE[k] for k in ("file_id", "duration")}}, (True, 7, False)),
        ({"video": VOICE | {"mime_type": "video/mp4"}}, (False, 7, False)),
        ({"document": VOICE | {"mime_type": "text/plain"}}, (False, 7, False)),
        ({"voice": VOICE | {"duration": 10**30}}, (True, None, False)),
        ({"voice": VOICE, "forward_origin": FROM_BOB}, (True, 7, True)),
        ({"text": TAP, "reply_to_message": replied(voice=VOICE, **{"from": BOB})}, (True, 7, True)),
    ],
    ids=["voice", "audio", "video note", "video", "document", "endless", "forwarded", "replied"],
)
def test_recordings_have_a_length_and_belong_to_somebody(
    fields: dict[str, Any], found: tuple[bool, int | None, bool]
) -> None:
    is_reply = "reply_to_message" in fields
    [file] = accepted(**({"chat": PLAIN} if is_reply else {"text": None}), **fields).attachments
    assert (file.is_speech, file.duration_s, file.is_quoted) == found
