"""Streaming answers on Telegram: drafts in private chats, edited messages elsewhere; indicators end in time."""

from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest

from bots.telegram.capabilities import GROUP_CALLS_PER_MINUTE, PATCH_SHARE
from bots.telegram.drafts import draft_id_of
from bus.errors import DeliveryError
from bus.messages import Button, ReplyTarget
from bus.outbound.indicators import IndicatorUpdater
from bus.platform import Disposition, SupportsDrafts, SupportsStreaming
from bus.tasks import run_beside
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import FAST, adapter_for, talking

GROUP = -1001234567890
ALICE = ReplyTarget(chat="1001", reply_to="1")
TEAM = ReplyTarget(chat=str(GROUP), reply_to="1")
STOP = Button(label="Stop", token="stop:7:0", style="danger")


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.dm("hello")
        server.mention(GROUP, "hello")
        yield server
        assert server.violations == []


async def test_streaming_can_be_disabled(telegram: TelegramServer) -> None:
    plain, streaming = adapter_for(telegram), adapter_for(telegram, streaming=True)
    assert isinstance(streaming, SupportsDrafts)
    assert isinstance(streaming, SupportsStreaming)
    assert (plain.capabilities.streaming, plain.uses_drafts(ALICE)) == (False, False)
    assert streaming.capabilities.streaming
    assert (streaming.uses_drafts(ALICE), streaming.uses_drafts(TEAM)) == (True, False)


async def test_a_draft_grows_and_is_never_a_message(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, streaming=True)
    for text in ("", "Half an **ans", "Half an **answer**"):
        await adapter.send_draft(ALICE, text, key="7:preview", stop=STOP)
    assert [draft.text for draft in telegram.drafts] == ["", "Half an ans", "Half an answer"]
    assert {draft.number for draft in telegram.drafts} == {draft_id_of("7:preview")}
    assert all(draft.can_stop for draft in telegram.drafts)
    assert telegram.answers(1001) == []
    await adapter.send_draft(ALICE, "another turn", key="8:preview", stop=STOP)
    assert telegram.drafts[-1].number != telegram.drafts[0].number


async def test_a_draft_stays_in_its_private_topic(telegram: TelegramServer) -> None:
    topic = telegram.add_topic(1001, "Travel")
    adapter = adapter_for(telegram, streaming=True)
    place = ReplyTarget(chat="1001", thread=str(topic))
    await adapter.send_draft(place, "Hm", key="7:preview", stop=STOP)
    assert telegram.drafts[-1].thread == topic


async def test_stopping_a_draft_presses_the_stop_button(telegram: TelegramServer) -> None:
    async with talking(telegram, streaming=True) as (adapter, recorder):
        await adapter.send_draft(ALICE, "Half an ans", key="7:preview", stop=STOP)
        telegram.stop_draft()
        await telegram.wait_for(lambda: recorder.pressed)
        (press,) = recorder.pressed
        assert (press.token, press.sender.user_id, press.is_private) == ("stop:7:0", "1001", True)
        telegram.push({"stopped_message_generation": {"chat": {"id": 1001}, "draft_id": 5}})
        telegram.push({"stopped_message_generation": {"chat": "?"}})
        await telegram.wait_for(lambda: telegram.backlog == 0)
    assert telegram.calls("answerCallbackQuery") == []
    ignored = [detail for reason, detail in recorder.ignored if reason is Disposition.UNSUPPORTED]
    assert ignored == ["a draft that is not being written", "unreadable update"]


async def test_a_server_without_drafts_is_asked_once() -> None:
    async with TelegramServer(classic=True) as telegram:
        telegram.dm("hello")
        adapter = adapter_for(telegram, streaming=True)
        with pytest.raises(DeliveryError) as caught:
            await adapter.send_draft(ALICE, "Half", key="7:preview", stop=STOP)
        assert not caught.value.retryable
        assert not adapter.uses_drafts(ALICE)  # from now on the answer grows in a message
        card = await adapter.start_streaming(ALICE, "…", key="k", buttons=[STOP])
        await adapter.update_streaming(ALICE, card, "Half", final=False, buttons=[STOP])
        await adapter.update_streaming(ALICE, card, "Half a loaf", final=True)
        (shown,) = telegram.answers(1001)
        assert (shown.text, shown.markup) == ("Half a loaf", [])


async def test_a_refused_draft_leaves_drafts_on(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, streaming=True)
    telegram.fail("sendMessageDraft", status=400, description="Bad Request: TEXTDRAFT_PEER_INVALID")
    with pytest.raises(DeliveryError):
        await adapter.send_draft(ALICE, "Half", key="7:preview", stop=STOP)
    assert adapter.uses_drafts(ALICE)
    telegram.fail("sendMessageDraft", status=429, parameters={"retry_after": 30})
    with pytest.raises(DeliveryError) as caught:
        await adapter.send_draft(ALICE, "Half", key="7:preview", stop=STOP)
    assert caught.value.retry_after_s == 30.0
    with pytest.raises(DeliveryError):  # that chat waits; nothing is sent
        await adapter.send_draft(ALICE, "Half a", key="7:preview", stop=STOP)
    with pytest.raises(DeliveryError):
        await adapter.show_working(ALICE)
    assert len(telegram.calls("sendMessageDraft")) == 2
    await adapter.send(ALICE, "The answer", key="k")  # required calls are tried anyway
    await adapter.show_working(TEAM)  # other chats are not affected


async def test_a_card_makes_a_sound_and_grows_in_its_place(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, streaming=True)
    card = await adapter.start_streaming(TEAM, "…", key="k", buttons=[STOP])
    await adapter.update_streaming(TEAM, card, "Half an **ans", final=False, buttons=[STOP])
    (shown,) = telegram.answers(GROUP)
    assert (shown.text, shown.reply_to, shown.silent) == ("Half an ans", 1, False)
    assert shown.markup[0][0]["callback_data"] == "stop:7:0"
    await adapter.update_streaming(TEAM, card, "Half an **answer**", final=True)
    await adapter.update_streaming(
        TEAM, card, "Half an **answer**", final=True
    )  # repeated: not modified
    assert shown.markup == []
    shown.deleted = True
    with pytest.raises(DeliveryError) as caught:
        await adapter.update_streaming(TEAM, card, "more", final=True)
    assert caught.value.target_gone


async def test_growing_answers_leave_room_for_the_final_one(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, streaming=True)
    card = await adapter.start_streaming(TEAM, "…", key="k")
    for number in range(int(PATCH_SHARE * GROUP_CALLS_PER_MINUTE) - 1):
        await adapter.update_streaming(TEAM, card, f"frame {number}", final=False)
    with pytest.raises(DeliveryError) as caught:
        await adapter.update_streaming(TEAM, card, "one too many", final=False)
    assert caught.value.retryable
    assert 0 < (caught.value.retry_after_s or 0) <= 60
    with pytest.raises(DeliveryError):
        await adapter.show_working(TEAM)
    await adapter.update_streaming(TEAM, card, "The answer", final=True)
    assert telegram.answers(GROUP)[0].text == "The answer"


@pytest.mark.parametrize("sign", ["typing", "draft"])
async def test_no_sign_arrives_after_the_answer(telegram: TelegramServer, sign: str) -> None:
    adapter = adapter_for(telegram, streaming=True)
    method = {"typing": "sendChatAction", "draft": "sendMessageDraft"}[sign]
    telegram.fail(method, lag_s=0.2)  # the server is slow to act on it
    async with anyio.create_task_group() as tasks:
        if sign == "typing":
            async with run_beside(*filter(None, (IndicatorUpdater().working(adapter, ALICE),))):
                await telegram.wait_for(lambda: telegram.calls(method))
        else:
            tasks.start_soon(lambda: adapter.send_draft(ALICE, "Half", key="7", stop=STOP))
            await telegram.wait_for(lambda: telegram.calls(method))
            tasks.cancel_scope.cancel()
    await adapter.send(ALICE, "Whole", key="k")
    assert [what for what, _, _ in telegram.log] == [sign, "message"]


async def test_a_hanging_indicator_does_not_delay_the_answer(telegram: TelegramServer) -> None:
    adapter = adapter_for(telegram, timeouts=replace(FAST, indicator_s=0.05))
    telegram.fail("sendChatAction", lag_s=60.0)
    with anyio.fail_after(20):
        async with run_beside(*filter(None, (IndicatorUpdater().working(adapter, ALICE),))):
            await telegram.wait_for(lambda: telegram.calls("sendChatAction"))
    await adapter.send(ALICE, "Whole", key="k")
    assert [what for what, _, _ in telegram.log] == ["message"]
