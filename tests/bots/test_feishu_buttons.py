"""Buttons on Feishu: shown below cards, pressed, answered with a toast. Real adapter, fake platform."""

import json
from dataclasses import replace

import anyio
import pytest

from bots.feishu import cards
from bots.feishu.cards import CardFooter
from bus.errors import IntakeClosed
from bus.locales.en import ENGLISH
from bus.messages import Button, PressResponse
from bus.platform import Disposition, SupportsButtons, SupportsEditing
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import QUICK, adapter_for, place_of, running
from tests.fakes.intake import RecordingIntake

STOP = Button(label="Stop", token="stop:7:0", style="danger")
OPTIONS = (
    Button(label="red", token="option:7:0", style="primary"),
    Button(label="blue", token="option:7:1"),
)


async def test_the_running_card_has_a_stop_button_that_the_answer_removes() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        place = place_of(asked)
        card = await adapter.start_streaming(place, "…", key="k1", buttons=[STOP])
        (answer,) = feishu.answers(asked.chat)
        assert answer.buttons == {"Stop": {"token": "stop:7:0"}}
        await adapter.update_streaming(place, card, "half", final=False, buttons=[STOP])
        assert list(answer.buttons) == ["Stop"]
        await adapter.update_streaming(place, card, "whole", final=True)
        assert (answer.buttons, answer.text) == ({}, "whole")
        assert feishu.violations == []


async def test_options_are_below_an_answer_until_it_is_changed() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        assert isinstance(adapter, SupportsButtons)
        assert isinstance(adapter, SupportsEditing)
        asked = await feishu.dm("hello")
        place = place_of(asked)
        question = await adapter.send_with_buttons(place, "Which?", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        assert list(answer.buttons) == ["red", "blue"]
        assert answer.text == "Which?"
        await adapter.edit_message(place, question, "Which?\n\n✓ red")
        assert answer.buttons == {}
        assert answer.text == "Which?\n\n✓ red"
        assert feishu.violations == []


async def test_a_press_is_answered_with_a_toast() -> None:
    intake = RecordingIntake(response=PressResponse(text="Stopped."))
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.dm("hello")
        await feishu.wait_for(lambda: feishu.event_of(asked).acked)
        card = await adapter.start_streaming(place_of(asked), "…", key="k1", buttons=[STOP])
        (answer,) = feishu.answers(asked.chat)
        pressed = await feishu.press(answer, "Stop", user="ou_bob")
        await feishu.wait_for(lambda: pressed.answer)
        assert pressed.codes == [200]
        assert pressed.answer == {"toast": {"type": "info", "content": "Stopped."}}
        assert feishu.violations == []
    (press,) = intake.pressed
    assert (press.token, press.message_id, press.sender.user_id) == ("stop:7:0", card, "ou_bob")
    assert (press.key.chat, press.key.workspace, press.is_private) == (asked.chat, "tenant_1", True)
    assert press.reply_target.reply_to == card
    assert press.event_id == pressed.id


async def test_a_refusal_is_a_warning_and_silence_is_no_toast() -> None:
    intake = RecordingIntake(response=PressResponse(text="Only Alice may.", urgent=True))
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.mention("hello")
        await adapter.send_with_buttons(place_of(asked), "Which?", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        refused = await feishu.press(answer, "red")
        await feishu.wait_for(lambda: refused.acked)
        assert refused.answer == {"toast": {"type": "warning", "content": "Only Alice may."}}
        intake.response = PressResponse()
        silent = await feishu.press(answer, "blue")
        await feishu.wait_for(lambda: silent.acked)
        assert silent.answer is None
    assert [press.is_private for press in intake.pressed] == [False, False]


@pytest.mark.parametrize("trouble", [IntakeClosed(), RuntimeError("disk")])
async def test_a_press_that_was_not_kept_says_so(trouble: Exception) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.mention("hello")
        await feishu.wait_for(lambda: feishu.event_of(asked).acked)
        intake.errors.append(trouble)
        await adapter.send_with_buttons(place_of(asked), "Which?", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        pressed = await feishu.press(answer, "red")
        await feishu.wait_for(lambda: pressed.acked)
        assert pressed.answer == {"toast": {"type": "warning", "content": ENGLISH.press_again}}


async def test_a_press_that_takes_too_long_is_answered_all_the_same() -> None:
    intake = RecordingIntake(gates={"stop:7:0": anyio.Event()})
    quick = replace(QUICK, press_s=0.05)
    async with FakeFeishu() as feishu, running(adapter_for(feishu, timings=quick), intake):
        asked = await feishu.dm("hello")
        pressed = await feishu.press_value(asked, {"token": "stop:7:0"})
        await feishu.wait_for(lambda: pressed.acked)
        assert pressed.answer == {"toast": {"type": "warning", "content": ENGLISH.press_again}}


async def test_a_press_does_not_wait_for_the_messages_of_its_chat() -> None:
    intake = RecordingIntake(gates={"slow": anyio.Event()})
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.dm("slow")
        await adapter.send_with_buttons(place_of(asked), "Which?", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        pressed = await feishu.press(answer, "red")
        await feishu.wait_for(lambda: pressed.acked)
        assert intake.received == []
        intake.gates["slow"].set()


async def test_callbacks_of_the_old_kind_are_presses_too() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.dm("hello")
        await adapter.send_with_buttons(place_of(asked), "Which?", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        pressed = await feishu.press(answer, "red", old=True)
        await feishu.wait_for(lambda: pressed.acked)
    assert [press.token for press in intake.pressed] == ["option:7:0"]


@pytest.mark.parametrize("value", [{}, {"token": 7}, {"other": "x"}])
async def test_buttons_of_others_are_acknowledged_and_counted(value: dict[str, object]) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter := adapter_for(feishu), intake):
        asked = await feishu.dm("hello")
        await adapter.send(place_of(asked), "hi", key="k1")
        pressed = await feishu.press_value(feishu.answers(asked.chat)[0], value)
        await feishu.wait_for(lambda: pressed.acked)
    assert intake.pressed == []
    assert intake.ignored[-1] == (Disposition.UNSUPPORTED, "card.action.trigger")


async def test_a_refused_card_keeps_its_buttons_without_markup() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", status=400, code=230099)
        await adapter.send_with_buttons(place_of(asked), "**Which?**", OPTIONS, key="k1")
        (answer,) = feishu.answers(asked.chat)
        assert list(answer.buttons) == ["red", "blue"]


def test_buttons_are_dropped_if_they_and_the_text_are_too_large() -> None:
    many = [Button(label="字" * 75, token=f"option:7:{n}") for n in range(10)]
    small = cards.final_card("Which?", CardFooter(buttons=many))
    assert json.dumps(small).count("option:7:") == 10
    large = cards.final_card("x" * 27_500, CardFooter(buttons=many))
    assert "option:7:" not in json.dumps(large)
