"""Streaming cards (CardKit), and every fallback to PATCH. Real adapter, fake platform."""

import time
from itertools import pairwise

import pytest

from bots.feishu import cards
from bots.feishu.adapter import FeishuAdapter
from bots.feishu.cardkit import CardKitApi
from bots.feishu.errors import FeishuError
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.streaming_cards import RENEW_S, StreamingCards
from bus.locales.en import ENGLISH
from bus.messages import Button, MessageId, ReplyTarget, platform_message_id
from bus.platform import ConnectionState
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.bots.feishu_rig import QUICK, adapter_for, place_of, running
from tests.fakes.clock import ManualClock
from tests.fakes.intake import RecordingIntake

STOP = Button(label="Stop", token="stop:7:0", style="danger")


async def opened(
    feishu: FakeFeishu, adapter: FeishuAdapter
) -> tuple[ReplyTarget, MessageId, FeishuMessage]:
    """Open a streaming card. Return its target, its ID, and the card as people see it."""
    feishu.allow_cardkit()
    asked = await feishu.dm("hello")
    place = place_of(asked)
    card = await adapter.start_streaming(place, "…", key="k1", buttons=[STOP])
    return place, card, feishu.answers(asked.chat)[0]


def sequences(feishu: FakeFeishu) -> list[int]:
    """Return the numbers of all operations on cards."""
    ops = ("card.content", "card.settings", "card.update")
    calls = sorted((call for op in ops for call in feishu.calls(op)), key=lambda call: call.at)
    return [call.body["sequence"] for call in calls]


async def test_a_card_streams_and_ends_as_exactly_the_answer() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        assert platform_message_id(card) == seen.id
        assert list(seen.buttons) == ["Stop"]
        await adapter.update_streaming(place, card, "one **two", final=False, buttons=[STOP])
        await adapter.update_streaming(
            place, card, "one **two** three", final=False, buttons=[STOP]
        )
        assert len(feishu.calls("card.content")) == 2
        await adapter.update_streaming(place, card, "one **two** three.", final=True)
        assert seen.text == "one **two** three."
        assert seen.buttons == {}
        assert not seen.content["config"].get("streaming_mode")
        assert [text.split("\n")[0] for text in seen.texts[1:3]] == [
            "one **two**",
            "one **two** three",
        ]
        assert ENGLISH.working in seen.texts[1]
        assert feishu.calls("message.patch") == []
        assert len(feishu.answers(place.chat)) == 1
        numbers = sequences(feishu)
        assert numbers == sorted(set(numbers))
        assert feishu.violations == []


async def test_buttons_that_change_are_shown_with_the_whole_card() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        await adapter.update_streaming(place, card, "one", final=False)
        assert seen.buttons == {}
        await adapter.update_streaming(place, card, "one two", final=False)
        assert seen.text.startswith("one two")
        assert (len(feishu.calls("card.update")), len(feishu.calls("card.content"))) == (1, 1)


async def test_without_the_scope_cards_are_patched_and_nothing_is_lost_or_doubled() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake()):
            assert adapter.health().detail == ""
            slow = adapter.capabilities.stream_interval_s
            for number in range(2):
                asked = await feishu.dm(f"hello {number}", user=f"ou_{number}")
                card = await adapter.start_streaming(place_of(asked), "…", key=f"k{number}")
                assert " " not in card
                await adapter.update_streaming(place_of(asked), card, "done", final=True)
                assert [answer.text for answer in feishu.answers(asked.chat)] == ["done"]
            assert len(feishu.calls("card.create")) == 1
            assert adapter.capabilities.stream_interval_s > slow
            assert adapter.health().state is ConnectionState.CONNECTED
            assert "cardkit:card:write" in adapter.health().detail
        assert feishu.violations == []


async def test_streaming_can_be_switched_off() -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        adapter = adapter_for(feishu, streaming=False)
        asked = await feishu.dm("hello")
        await adapter.start_streaming(place_of(asked), "…", key="k1")
        assert feishu.calls("card.create") == []


@pytest.mark.parametrize(
    ("failure", "lasting"),
    [
        ({"status": 404, "text": "404 page not found"}, True),
        ({"status": 400, "code": 99991672}, True),
        ({"status": 502, "text": "bad gateway"}, False),
        ({"drop": "before"}, False),
    ],
)
async def test_a_card_that_cannot_be_made_is_sent_whole(
    failure: dict[str, object], lasting: bool
) -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        feishu.fail("card.create", **failure)  # type: ignore[arg-type]
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        for number in range(2):
            card = await adapter.start_streaming(place_of(asked), "…", key=f"k{number}")
            await adapter.update_streaming(place_of(asked), card, f"done {number}", final=True)
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["done 0", "done 1"]
        assert len(feishu.calls("card.create")) == (1 if lasting else 2)


async def test_an_entity_that_messages_do_not_take_is_replaced_by_a_whole_card() -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", status=400, code=230001)
        card = await adapter.start_streaming(place_of(asked), "…", key="k1")
        await adapter.update_streaming(place_of(asked), card, "done", final=True)
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["done"]
        await adapter.start_streaming(place_of(asked), "…", key="k2")
        assert len(feishu.calls("card.create")) == 1


async def test_a_chat_that_refuses_every_card_does_not_end_streaming() -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        adapter = adapter_for(feishu)
        asked = await feishu.mention("hello")
        feishu.remove_bot(asked.chat)
        with pytest.raises(FeishuError) as caught:
            await adapter.start_streaming(place_of(asked), "…", key="k1")
        assert not caught.value.retryable
        other = await feishu.dm("hello")
        assert " " in await adapter.start_streaming(place_of(other), "…", key="k2")


async def test_a_send_whose_answer_was_lost_is_repeated_with_the_same_card() -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", drop="after")
        with pytest.raises(FeishuError):
            await adapter.start_streaming(place_of(asked), "…", key="k1")
        card = await adapter.start_streaming(place_of(asked), "…", key="k1")
        await adapter.update_streaming(place_of(asked), card, "done", final=True)
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["done"]
        assert len(feishu.calls("card.create")) == 1


@pytest.mark.parametrize("converts", [True, False])
async def test_a_card_sent_before_a_crash_is_found_again(converts: bool) -> None:
    async with FakeFeishu() as feishu:
        place, _, seen = await opened(feishu, adapter_for(feishu))
        seen.made_at = time.time() - 60  # the first attempt's
        feishu.cardkit.converts = converts
        adapter = adapter_for(feishu)
        again = await adapter.start_streaming(place, "…", key="k1", buttons=[STOP])
        if converts:
            await adapter.update_streaming(place, again, "half", final=False, buttons=[STOP])
            await adapter.update_streaming(place, again, "done", final=True)
            assert [answer.text for answer in feishu.answers(place.chat)] == ["done"]
        else:
            with pytest.raises(FeishuError) as caught:
                await adapter.update_streaming(place, again, "done", final=True)
            assert caught.value.target_gone  # the bus sends the answer as a new message
        assert feishu.violations == []


async def test_a_new_process_goes_on_with_the_card_it_finds() -> None:
    async with FakeFeishu() as feishu:
        before = adapter_for(feishu)
        place, card, seen = await opened(feishu, before)
        for number in range(5):
            await before.update_streaming(place, card, "one " * number, final=False, buttons=[STOP])
        after = adapter_for(feishu)
        await after.update_streaming(
            place, card, "one two three four five six", final=False, buttons=[STOP]
        )
        await after.update_streaming(place, card, "all of it", final=True)
        assert seen.text == "all of it"
        assert len(feishu.answers(place.chat)) == 1
        assert feishu.violations == []


async def test_a_clock_that_was_set_back_is_leapt_over() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        await adapter.update_streaming(place, card, "one", final=False, buttons=[STOP])
        (entity,) = feishu.cardkit.entities.values()
        entity.sequence += 50_000
        await adapter.update_streaming(place, card, "one two", final=False, buttons=[STOP])
        await adapter.update_streaming(place, card, "done", final=True)
        assert seen.text == "done"


async def test_a_closed_stream_is_opened_again() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        feishu.cardkit.closes_streams = True  # 200850
        await adapter.update_streaming(place, card, "one", final=False, buttons=[STOP])
        assert seen.text.startswith("one")
        feishu.cardkit.close_streams()  # 300309
        await adapter.update_streaming(place, card, "one two", final=False, buttons=[STOP])
        assert seen.text.startswith("one two")
        feishu.cardkit.close_streams()
        await adapter.update_streaming(place, card, "one two three", final=True)
        assert seen.text == "one two three"
        assert len(feishu.calls("card.content")) == 4
        assert feishu.violations == []


async def test_a_stream_that_stays_closed_is_replaced_whole_without_a_storm() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        feishu.cardkit.close_streams()
        feishu.cardkit.reopens_streams = False
        for number in range(1, 4):
            await adapter.update_streaming(
                place, card, "one " * number, final=False, buttons=[STOP]
            )
            assert seen.text.startswith(("one " * number).strip())
            feishu.cardkit.close_streams()
        await adapter.update_streaming(place, card, "done", final=True)
        assert (seen.text, len(feishu.calls("card.content"))) == ("done", 1)
        assert adapter.capabilities.streaming


async def test_an_answer_that_its_card_refuses_is_sent_as_a_new_message_and_the_card_is_removed() -> (
    None
):
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        await adapter.update_streaming(place, card, "half", final=False, buttons=[STOP])
        feishu.cardkit.entities.clear()
        feishu.rest.scopes.add("im:message:recall")
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place, card, "all", final=True)
        assert caught.value.target_gone
        assert seen.gone


async def test_a_withdrawn_card_is_noticed_although_its_entity_exists() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        feishu.recall(seen)
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place, card, "all", final=True)
        assert caught.value.target_gone


async def test_an_answer_is_changed_later_under_its_plain_id_as_well() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        await adapter.update_streaming(place, card, "Which?", final=True, buttons=[STOP])
        await adapter.edit_message(place, card, "Which? ✓")
        assert (seen.text, seen.buttons) == ("Which? ✓", {})
        await adapter_for(feishu).edit_message(place, MessageId(seen.id), "Which? ✓✓")
        assert seen.text == "Which? ✓✓"
        assert feishu.violations == []


async def test_a_refused_card_is_shown_without_markup() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        feishu.fail("card.content", status=400, code=230099)
        await adapter.update_streaming(place, card, "**half**", final=False, buttons=[STOP])
        feishu.fail("card.update", status=400, code=230099)
        await adapter.update_streaming(place, card, "**all**", final=True)
        assert seen.text == "**all**"
        assert seen.content["body"]["elements"][0]["tag"] == "div"


async def test_a_rate_limited_frame_names_the_wait() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, _ = await opened(feishu, adapter)
        headers = {"x-ogw-ratelimit-reset": "7"}
        feishu.fail("card.content", status=429, code=99991400, headers=headers)
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place, card, "one", final=False, buttons=[STOP])
        assert caught.value.retry_after_s == 7.0
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place, card, "one two", final=False, buttons=[STOP])
        assert caught.value.retryable
        assert len(feishu.calls("card.content")) == 1
        assert adapter.capabilities.stream_interval_s * 8 > 1


async def test_a_stream_is_renewed_before_the_platform_ends_it() -> None:
    assert 60 < RENEW_S < 590
    clock = ManualClock()
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        app = FeishuApp(app_id=feishu.app_id, app_secret=feishu.app_secret, domain=feishu.url)
        kit = CardKitApi(FeishuRestClient(app, QUICK))
        streams = StreamingCards(kit, clock=clock)
        made = await kit.create(cards.streaming_card("…"))
        streams.register(made.id, cards.NO_FOOTER)
        for _ in range(3):
            clock.now += RENEW_S - 100
            await streams.update(made.id, f"at {clock.now}", cards.NO_FOOTER)
        ops = [call.body["sequence"] for call in feishu.calls("card.settings")]
        assert len(ops) == 1  # 400 s, 800 s (renewed), 1200 s
        assert len(feishu.calls("card.content")) == 3
        assert feishu.violations == []


async def test_plain_words_only_ever_go_on() -> None:
    """Clients continue typing after the text so far, and do not show it again."""
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, _ = await opened(feishu, adapter)
        words = "It is **so**: one, two, three.\n\nAnd four"
        ends = [end for end in range(4, len(words), 7) if words[:end].count("**") != 1]
        for end in ends[:6]:
            await adapter.update_streaming(place, card, words[:end], final=False, buttons=[STOP])
        shown = [call.body["content"] for call in feishu.calls("card.content")]
        assert all(after.startswith(before.rstrip()) for before, after in pairwise(shown))


async def test_a_text_that_the_tenant_forbids_is_reported_and_streaming_goes_on() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        feishu.fail("card.content", status=400, code=230028)
        feishu.fail("card.update", status=400, code=230028)
        for final in (False, True):
            with pytest.raises(FeishuError) as caught:
                await adapter.update_streaming(place, card, "call 555", final=final, buttons=[STOP])
            assert (caught.value.retryable, caught.value.target_gone) == (False, False)
        assert not seen.gone
        assert feishu.calls("message.patch") == []
        assert " " in await adapter.start_streaming(place, "…", key="k2")


async def test_a_platform_with_half_of_cardkit_loses_nothing() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes.add("im:message:recall")
        adapter = adapter_for(feishu)
        place, card, seen = await opened(feishu, adapter)
        for op in ("card.content", "card.settings", "card.update", "card.convert", "message.get"):
            feishu.fail(op, times=100, status=404, text="404 page not found")
        with pytest.raises(FeishuError):
            await adapter.update_streaming(place, card, "half", final=False, buttons=[STOP])
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place, card, "all", final=True)
        assert (caught.value.target_gone, seen.gone) == (True, True)
        assert " " not in await adapter.start_streaming(place, "…", key="k2")
