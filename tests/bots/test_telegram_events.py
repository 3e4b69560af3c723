"""Telegram updates other than messages: presses, edits, migrations, memberships. A table with every case."""

from typing import Any

import pytest

from bots.common.events import IgnoredEvent
from bots.telegram.events import (
    CallbackQueryEvent,
    ChatMigratedEvent,
    DraftStoppedEvent,
    TelegramEvent,
    parse_update,
)
from bots.telegram.identity import TelegramIdentity
from bots.telegram.keyboard import is_silent, keyboard
from bus.messages import (
    Button,
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageEdit,
    ReplyTarget,
)
from gateway.playground.telegram.chats import Wire

ME = TelegramIdentity(user_id=700700, username="Parley_Bot")
COMMANDS = {"help", "new"}
GROUP = -1001234567890
ALICE = {"id": 1001, "is_bot": False, "first_name": "Alice", "language_code": "zh-hans"}
BOT = {"id": 700700, "is_bot": True, "first_name": "Parley", "username": "Parley_Bot"}
PRIVATE = {"id": 1001, "type": "private", "first_name": "Alice"}
FORUM = {"id": GROUP, "type": "supergroup", "title": "Team", "is_forum": True}
TOPIC = {"message_thread_id": 40, "is_topic_message": True}
ASKED = {"message_id": 60, "date": 1_790_000_000, "chat": PRIVATE, "from": BOT, "text": "Which?"}


def meaning(**update: Wire) -> TelegramEvent:
    return parse_update({"update_id": 9, **update}, ME, COMMANDS)


def query(**fields: Wire) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": "q1",
        "from": ALICE,
        "chat_instance": "1",
        "message": ASKED,
        "data": "option:7:1",
    } | fields
    return {key: value for key, value in body.items() if value is not None}


def key(chat: int, topic: str = "") -> ConversationKey:
    return ConversationKey(channel="telegram", workspace="700700", chat=str(chat), topic=topic)


def pressed(**fields: Wire) -> ButtonPress:
    result = meaning(callback_query=query(**fields))
    assert isinstance(result, CallbackQueryEvent)
    assert result.query_id == "q1"
    assert result.press is not None
    return result.press


def test_a_pressed_button_in_private() -> None:
    press = pressed()
    assert (press.event_id, press.token, press.message_id) == ("9", "option:7:1", "60")
    assert (press.key, press.is_private) == (key(1001), True)
    assert press.reply_target == ReplyTarget(chat="1001", reply_to="60")
    assert (press.sender.user_id, press.sender.name, press.language) == ("1001", "Alice", "zh-hans")


def test_a_pressed_button_in_a_topic() -> None:
    press = pressed(message=ASKED | TOPIC | {"chat": FORUM})
    assert (press.key, press.is_private) == (key(GROUP, "40"), False)
    assert press.reply_target == ReplyTarget(chat=str(GROUP), thread="40", reply_to="60")


def test_a_pressed_button_of_a_message_that_telegram_does_not_show_any_more() -> None:
    press = pressed(message={"chat": FORUM, "message_id": 60, "date": 0})
    assert (press.key, press.message_id) == (key(GROUP), "60")


@pytest.mark.parametrize(
    "fields",
    [
        {"message": None, "inline_message_id": "i"},
        {"data": None, "game_short_name": "chess"},
        {"data": "x" * 200},
        {"data": ["x"] * 200},
    ],
    ids=["inline", "game", "too long", "no text"],
)
def test_buttons_of_others_are_answered_all_the_same(fields: dict[str, Any]) -> None:
    assert meaning(callback_query=query(**fields)) == CallbackQueryEvent(query_id="q1", press=None)


def test_an_edit_is_the_message_as_it_now_is() -> None:
    edited = {"message_id": 55, "date": 1, "edit_date": 2, "chat": PRIVATE, "from": ALICE}
    change = meaning(edited_message=edited | {"text": "better"})
    assert isinstance(change, MessageEdit)
    assert isinstance(change.edited, InboundMessage)
    assert (change.event_id, change.key, change.message_id) == ("9", key(1001), "55")
    assert (change.edited.text, change.edited.message_id) == ("better", "55")
    assert change.edited.edited_at == 2.0
    document = {"file_id": "F", "file_unique_id": "U"}
    captioned = meaning(edited_message=edited | {"document": document, "caption": "read it"})
    assert isinstance(captioned, MessageEdit)
    assert (captioned.edited.text, len(captioned.edited.attachments)) == ("read it", 1)


@pytest.mark.parametrize("text", ["/new", "/NEW now"])
def test_an_edited_command_is_not_carried_out_again(text: str) -> None:
    edited = {"message_id": 55, "date": 1, "chat": PRIVATE, "from": ALICE, "text": text}
    result = meaning(edited_message=edited)
    assert result == IgnoredEvent("edited command")
    path = meaning(edited_message=edited | {"text": "/usr/bin"})
    assert isinstance(path, MessageEdit)


@pytest.mark.parametrize(
    ("chat", "fields"),
    [
        (-4001, {"migrate_to_chat_id": GROUP}),
        (GROUP, {"migrate_from_chat_id": -4001}),
    ],
)
def test_a_group_that_becomes_a_supergroup(chat: int, fields: dict[str, Any]) -> None:
    place = {"id": chat, "type": "group", "title": "Team"}
    result = meaning(message={"message_id": 1, "date": 1, "chat": place, "from": ALICE} | fields)
    assert result == ChatMigratedEvent(workspace="700700", old_chat="-4001", new_chat=str(GROUP))


def test_a_stopped_draft_is_a_press_of_its_writer() -> None:
    result = meaning(stopped_message_generation={"chat": PRIVATE, "draft_id": 77})
    assert isinstance(result, DraftStoppedEvent)
    assert (result.draft_id, result.press.sender.user_id) == (77, "1001")
    assert (result.press.key, result.press.is_private) == (key(1001), True)
    topical = meaning(
        stopped_message_generation={"chat": PRIVATE, "draft_id": 77, "message_thread_id": 4}
    )
    assert isinstance(topical, DraftStoppedEvent)
    assert topical.press.reply_target == ReplyTarget(chat="1001", thread="4")


@pytest.mark.parametrize("told", [{}, {"draft_id": 1}, {"chat": {}}, {"chat": 7, "draft_id": "x"}])
def test_an_unreadable_draft_stop_raises_a_parse_error(told: Wire) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        meaning(stopped_message_generation=told)


@pytest.mark.parametrize("status", ["member", "left", "kicked"])
def test_changes_of_the_bots_membership_are_parsed(status: str) -> None:
    member = {"user": BOT, "status": status, "until_date": 0}
    update = {
        "chat": PRIVATE,
        "from": ALICE,
        "date": 1,
        "old_chat_member": {"user": BOT, "status": "member"},
        "new_chat_member": member,
    }
    result = meaning(my_chat_member=update)
    assert isinstance(result, IgnoredEvent)
    shown = {"kicked": "banned"}.get(status, status)
    assert result.detail in {
        f"the bot is now {status} in a private chat",
        f"the bot is now {shown} in a private chat",
    }


def test_few_short_buttons_share_a_row_and_long_ones_do_not() -> None:
    short = [Button(label="Yes", token="a", style="primary"), Button(label="No", token="b")]
    rows = keyboard(short)
    assert rows is not None
    assert [[b.text for b in row] for row in rows.inline_keyboard] == [["Yes", "No"]]
    assert [b.style for b in rows.inline_keyboard[0]] == ["primary", None]
    wide = keyboard([Button(label="A rather long option", token=str(n)) for n in range(3)])
    assert wide is not None
    assert [len(row) for row in wide.inline_keyboard] == [1, 1, 1]
    assert keyboard([]) is None


def test_only_a_working_sign_is_silent() -> None:
    stop = Button(label="Stop", token="stop:1:0", style="danger")
    assert is_silent([stop])
    assert not is_silent([])
    assert not is_silent([Button(label="Approve", token="a", style="primary"), stop])
