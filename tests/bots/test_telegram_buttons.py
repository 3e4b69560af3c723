"""Buttons on Telegram through the real SDK: sent, pressed, answered, changed, removed."""

from collections.abc import AsyncIterator

import pytest

from bots.telegram.adapter import TelegramAdapter
from bus.errors import DeliveryError, IntakeFull
from bus.messages import Button, MessageId, PressResponse, ReplyTarget
from bus.platform import Disposition
from gateway.playground.telegram.chats import TelegramMessage
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import adapter_for, running, talking
from tests.fakes.intake import RecordingIntake

GROUP = -1001234567890
ALICE = ReplyTarget(chat="1001", reply_to="1")
OPTIONS = (
    Button(label="Paris", token="option:7:0"),
    Button(label="Rome, the eternal city", token="option:7:1"),
)
STOP = Button(label="Stop", token="stop:7:0", style="danger")


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.dm("hello")
        yield server
        assert server.violations == []


@pytest.fixture
def adapter(telegram: TelegramServer) -> TelegramAdapter:
    return adapter_for(telegram)


def rows(message: TelegramMessage) -> list[list[str]]:
    return [[button["callback_data"] for button in row] for row in message.markup]


async def test_buttons_stand_below_the_message(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    await adapter.send_with_buttons(ALICE, "**Where** to?", OPTIONS, key="k")
    (asked,) = telegram.answers(1001)
    assert (asked.text, rows(asked)) == ("Where to?", [["option:7:0"], ["option:7:1"]])
    assert not asked.silent


async def test_a_working_message_makes_no_sound(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    telegram.add_forum(GROUP)
    topic = telegram.add_topic(GROUP, "Plans")
    place = ReplyTarget(chat=str(GROUP), thread=str(topic))
    await adapter.send_with_buttons(place, "Working", [STOP], key="k")
    (working,) = telegram.answers(GROUP, thread=topic)
    assert working.silent
    await adapter.send(place, "Done", key="k2")
    assert not telegram.answers(GROUP, thread=topic)[1].silent


async def test_a_press_is_kept_and_answered(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        message = await adapter.send_with_buttons(ALICE, "Where to?", OPTIONS, key="k")
        query = telegram.press(1001, "Paris", language="de")
        await telegram.wait_for(lambda: telegram.queries[query].answer is not None)
        (press,) = recorder.pressed
        assert (press.token, press.message_id, press.language) == ("option:7:0", message, "de")
        assert (telegram.queries[query].answer, telegram.queries[query].alert) == ("pressed", False)
        recorder.response = PressResponse(text="Only Ann may. " * 20, urgent=True)
        query = telegram.press(1001, "Paris", inaccessible=True)
        await telegram.wait_for(lambda: telegram.queries[query].answer is not None)
        assert telegram.queries[query].alert
        assert len(telegram.queries[query].answer or "") == 200
        recorder.response = PressResponse()
        query = telegram.press(1001, "Paris")
        await telegram.wait_for(lambda: telegram.queries[query].answer == "")
        await telegram.wait_for(lambda: telegram.backlog == 0)


async def test_a_press_that_is_not_stored_is_delivered_again(telegram: TelegramServer) -> None:
    adapter, recorder = adapter_for(telegram), RecordingIntake()
    await adapter.send_with_buttons(ALICE, "Where to?", OPTIONS, key="k")
    query = telegram.press(1001, "Paris")
    async with running(adapter, recorder):
        await telegram.wait_for(lambda: recorder.pressed)
    recorder.errors = [IntakeFull() for _ in range(3)]
    query = telegram.press(1001, "Paris")
    async with running(adapter, recorder):
        await telegram.wait_for(lambda: telegram.queries[query].answer == "pressed")
    assert len(recorder.pressed) == 2
    assert recorder.offered_presses.count(recorder.pressed[1]) == 4


async def test_a_press_is_answered_once_only_and_late_ones_do_no_harm(
    telegram: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(telegram) as (adapter, recorder):
        await adapter.send_with_buttons(ALICE, "Where to?", OPTIONS, key="k")
        telegram.fail(
            "answerCallbackQuery",
            status=400,
            description="Bad Request: query is too old and response timeout expired or query ID is invalid",
        )
        telegram.press(1001, "Paris")
        await telegram.wait_for(lambda: recorder.pressed)
        telegram.fail("answerCallbackQuery", status=500)
        telegram.press(1001, "Paris")
        await telegram.wait_for(lambda: len(telegram.calls("answerCallbackQuery")) == 2)
        telegram.dm("and on it goes")
        await telegram.wait_for(lambda: "and on it goes" in recorder.texts)
    warned = [
        r for r in caplog.records if r.levelname == "WARNING" and "answerCallbackQuery" in r.message
    ]
    assert len(warned) == 1


async def test_a_slow_callback_answer_blocks_no_update(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        await adapter.send_with_buttons(ALICE, "Where to?", OPTIONS, key="k")
        telegram.fail("answerCallbackQuery", lag_s=30.0)
        telegram.press(1001, "Paris")
        telegram.dm("next")
        await telegram.wait_for(lambda: "next" in recorder.texts)


async def test_foreign_buttons_are_answered_and_ignored(telegram: TelegramServer) -> None:
    async with talking(telegram) as (adapter, recorder):
        await adapter.send(ALICE, "plain", key="k")
        query = telegram.press_token(telegram.answers(1001)[0], "x" * 300)
        await telegram.wait_for(lambda: telegram.queries[query].answer == "")
    assert recorder.pressed == []
    assert recorder.ignored == [(Disposition.UNSUPPORTED, "a button of another bot")]


async def test_an_edit_takes_text_and_buttons(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    message = await adapter.send_with_buttons(ALICE, "Where to?", OPTIONS, key="k")
    await adapter.edit_message(ALICE, message, "Where to?\n\n✅ Paris")
    (asked,) = telegram.answers(1001)
    assert (asked.text, asked.markup) == ("Where to?\n\n✅ Paris", [])
    await adapter.edit_message(ALICE, message, "Where to?\n\n✅ Paris")  # not modified
    await adapter.edit_message(ALICE, message, "**Again**", buttons=[STOP])
    assert rows(asked) == [["stop:7:0"]]
    assert asked.entities == [{"type": "bold", "offset": 0, "length": 5}]


async def test_refused_formatting_is_edited_in_bare(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    message = await adapter.send(ALICE, "one", key="k")
    telegram.fail("editMessageText", status=400, description="Bad Request: can't parse entities: x")
    await adapter.edit_message(ALICE, message, "**two**")
    (shown,) = telegram.answers(1001)
    assert (shown.text, shown.entities) == ("two", [])


async def test_an_edit_of_what_is_gone_says_so(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    message = await adapter.send(ALICE, "one", key="k")
    telegram.answers(1001)[0].deleted = True
    for gone in (message, MessageId("4711")):
        with pytest.raises(DeliveryError) as caught:
            await adapter.edit_message(ALICE, gone, "two")
        assert caught.value.target_gone
    with pytest.raises(DeliveryError) as caught:
        await adapter.edit_message(ALICE, MessageId("1699.1"), "two")
    assert not caught.value.retryable


async def test_a_message_is_taken_away_once_or_more(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    message = await adapter.send_with_buttons(ALICE, "Working", [STOP], key="k")
    await adapter.delete_message(ALICE, message)
    assert telegram.answers(1001) == []
    await adapter.delete_message(ALICE, message)
    telegram.block(1001)
    with pytest.raises(DeliveryError):
        await adapter.delete_message(ALICE, message)


async def test_tokens_of_any_length_that_telegram_takes(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    longest = Button(label="x", token="t" * 64)
    await adapter.send_with_buttons(ALICE, "ok", [longest], key="k")
    with pytest.raises(DeliveryError) as caught:
        await adapter.send_with_buttons(ALICE, "no", [Button(label="x", token="t" * 65)], key="k")
    assert not caught.value.retryable


async def test_a_server_without_edits_blocks_no_answer(
    telegram: TelegramServer, adapter: TelegramAdapter
) -> None:
    message = await adapter.send_with_buttons(ALICE, "Working", [STOP], key="k")
    for method in ("deleteMessage", "editMessageText"):
        telegram.fail(method, status=404, description="Not Found: method not found")
    with pytest.raises(DeliveryError) as removing:
        await adapter.delete_message(ALICE, message)
    with pytest.raises(DeliveryError) as editing:
        await adapter.edit_message(ALICE, message, "Done")
    assert not removing.value.retryable
    assert not editing.value.retryable
    assert editing.value.target_gone  # so that the text is sent as a new message
    telegram.revoke()
    with pytest.raises(DeliveryError) as refused:
        await adapter.edit_message(ALICE, message, "Done")
    assert refused.value.retryable
    telegram.revoke(revoked=False)
