"""Sending on Feishu: cards, updates, files, indicators, and every failure. Real adapter, fake platform."""

import json
from typing import Any

import anyio
import httpx
import pytest

from bots.feishu.adapter import FeishuAdapter
from bots.feishu.errors import FeishuError
from bots.feishu.timeouts import FeishuTimeouts
from bus.errors import DeliveryError, MessageTooLong
from bus.locales.en import ENGLISH
from bus.messages import ReplyTarget
from gateway.playground.feishu.server import FakeFeishu, FeishuCall
from tests.bots.feishu_rig import adapter_for, place_of, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.garbage import garbage_made


async def failure(adapter: FeishuAdapter, place: ReplyTarget, *, key: str = "k") -> FeishuError:
    """Send, and return the error."""
    with pytest.raises(FeishuError) as caught:
        await adapter.send(place, "an answer", key=key)
    return caught.value


async def test_an_answer_is_a_card_that_replies_to_the_message() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        sent = await adapter.send(place_of(asked), "**hi** there", key="k1")
        (answer,) = feishu.answers_to(asked)
        assert (answer.id, answer.text, answer.thread) == (sent, "**hi** there", "")
        assert feishu.violations == []


async def test_a_call_leaves_no_garbage() -> None:
    async with FakeFeishu() as feishu:
        adapter, asked = adapter_for(feishu), await feishu.dm("hello")
        with garbage_made() as garbage:
            await adapter.send(place_of(asked), "hi", key="k1")
    assert [found for found in garbage if isinstance(found, httpx.Response)] == []


async def test_an_answer_in_a_topic_stays_there() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.mention("hello", thread="omt_1")
        await adapter_for(feishu).send(place_of(asked), "hi", key="k1")
        assert [answer.thread for answer in feishu.answers_to(asked)] == ["omt_1"]


async def test_a_chat_without_a_message_to_answer_is_written_to() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("hello")
        await adapter_for(feishu).send(ReplyTarget(chat=asked.chat), "hi", key="k1")
        assert [answer.reply_to for answer in feishu.answers(asked.chat)] == [""]
        assert feishu.violations == []


async def test_a_withdrawn_message_is_answered_in_the_chat() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("hello")
        feishu.recall(asked)
        await adapter_for(feishu).send(place_of(asked), "hi", key="k1")
        assert [(answer.reply_to, answer.text) for answer in feishu.answers(asked.chat)] == [
            ("", "hi")
        ]


async def test_an_answer_stays_in_the_topic_of_a_message_that_is_gone() -> None:
    async with FakeFeishu() as feishu:
        adapter, intake = adapter_for(feishu), RecordingIntake()
        async with running(adapter, intake):
            root = await feishu.say("our trip", chat="oc_room", thread="omt_1")
            asked = await feishu.mention("where to?", reply_to=root.id)
            await eventually(lambda: any(one.is_addressed for one in intake.received))
            place = next(one.reply_target for one in intake.received if one.is_addressed)
            feishu.recall(asked)
            await adapter.send(place, "to Rome", key="k1")
            (answer,) = feishu.answers(asked.chat)
            assert (answer.thread, answer.reply_to) == ("omt_1", root.id)
            feishu.recall(root)
            with pytest.raises(FeishuError) as caught:  # The bus sends it elsewhere, and says why.
                await adapter.send(place, "or Oslo", key="k2")
            assert caught.value.place_gone == "thread"
        assert [answer.thread for answer in feishu.answers(asked.chat)] == ["omt_1"]
        assert feishu.violations == []


async def test_an_answer_can_be_taken_away_twice() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        feishu.rest.scopes.add("im:message:recall")
        place = place_of(await feishu.dm("hello"))
        for streaming in (False, True):
            message = await (adapter.start_streaming if streaming else adapter.send)(
                place, "…", key=f"k{streaming}"
            )
            await adapter.delete_message(place, message)
            await adapter.delete_message(place, message)
        assert all(answer.gone for answer in feishu.answers(place.chat))


async def test_a_card_grows_and_ends_as_exactly_the_answer() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        place = place_of(asked)
        card = await adapter.start_streaming(place, "", key="k1")
        await adapter.update_streaming(place, card, "one **two", final=False)
        await adapter.update_streaming(place, card, "one **two** three", final=True)
        (answer,) = feishu.answers(asked.chat)
        first, growing, last = answer.texts
        assert first == ENGLISH.working
        assert growing.startswith("one **two**")
        assert ENGLISH.working in growing
        assert last == "one **two** three"
        assert feishu.violations == []


async def test_a_patch_replaces_words_wholly() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), "draft", key="k1")
        await adapter.update_streaming(place_of(asked), card, "", final=True)
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["…"]


async def test_patches_faster_than_the_platform_allows_say_when_to_come_back() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), "", key="k1")
        for number in range(5):
            await adapter.update_streaming(place_of(asked), card, f"{number}", final=False)
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place_of(asked), card, "too soon", final=False)
        assert caught.value.retryable
        assert caught.value.retry_after_s == 1.0
        assert not caught.value.target_gone
        assert adapter.capabilities.stream_interval_s * 5 > 1


@pytest.mark.parametrize("how", ["recall", "expire"])
async def test_a_card_that_can_no_longer_change_is_gone(how: str) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), "", key="k1")
        getattr(feishu, how)(feishu.answers(asked.chat)[0])
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place_of(asked), card, "late", final=True)
        assert caught.value.target_gone
        assert not caught.value.retryable


async def test_the_same_key_sends_once() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        first = await adapter.send(place_of(asked), "hi", key="k1")
        again = await adapter.send(place_of(asked), "hi", key="k1")
        other = await adapter.send(place_of(asked), "hi", key="k2")
        assert first == again != other
        assert len(feishu.answers(asked.chat)) == 2


async def test_the_same_key_in_another_chat_is_another_message() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        first, second = await feishu.dm("one"), await feishu.dm("two")
        await adapter.send(place_of(first), "hi", key="k1")
        await adapter.send(place_of(second), "hi", key="k1")
        assert len(feishu.answers(first.chat)) == 2


async def test_a_send_whose_answer_was_lost_is_ambiguous_and_repeats_safely() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", drop="after")
        error = await failure(adapter, place_of(asked))
        assert (error.retryable, error.ambiguous) == (True, True)
        await adapter.send(place_of(asked), "an answer", key="k")
        assert len(feishu.answers(asked.chat)) == 1
        assert len(feishu.calls("message.reply")) == 2


async def test_a_send_that_takes_too_long_is_ambiguous() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, timeouts=FeishuTimeouts(call_s=1.0))
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", delay_s=60.0)
        error = await failure(adapter, place_of(asked))
        assert (error.retryable, error.ambiguous) == (True, True)


async def test_a_platform_that_is_not_there_is_not_ambiguous() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
    error = await failure(adapter, ReplyTarget(chat="oc_1"))
    assert (error.retryable, error.ambiguous) == (True, False)


async def test_a_token_that_cannot_be_fetched_is_not_ambiguous() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("token", drop="before")
        error = await failure(adapter, place_of(asked))
        assert (error.retryable, error.ambiguous) == (True, False)
        assert feishu.calls("message.reply") == []


async def test_a_5xx_is_not_delivered_and_worth_repeating() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", status=502, text="<html>bad gateway</html>")
        error = await failure(adapter_for(feishu), place_of(asked))
        assert (error.retryable, error.ambiguous, error.retry_after_s)[:2] == (True, False)
        assert feishu.answers(asked.chat) == []
        assert len(feishu.calls("message.reply")) == 1


async def test_a_429_names_the_wait() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("hello")
        headers = {"x-ogw-ratelimit-limit": "50", "x-ogw-ratelimit-reset": "7"}
        feishu.fail("message.reply", status=429, code=99991400, headers=headers)
        error = await failure(adapter_for(feishu), place_of(asked))
        assert (error.retryable, error.retry_after_s, error.ambiguous) == (True, 7.0, False)


async def test_the_limit_of_the_app_names_the_wait() -> None:
    async with FakeFeishu(app_calls_per_s=3) as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        for number in range(3):
            await adapter.send(place_of(asked), "hi", key=f"k{number}")
        error = await failure(adapter, place_of(asked))
        assert (error.retryable, error.retry_after_s) == (True, 1.0)


async def test_a_bot_that_was_removed_cannot_speak() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.mention("hello")
        feishu.remove_bot(asked.chat)
        error = await failure(adapter_for(feishu), place_of(asked))
        assert not error.retryable
        assert "add it to the group" in error.user_message


async def test_a_token_is_fetched_once_and_renewed_when_refused() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(_send, adapter, place_of(asked), f"k{number}")
        assert len(feishu.calls("token")) == 1
        feishu.revoke_tokens()
        await adapter.send(place_of(asked), "again", key="k9")
        assert len(feishu.calls("token")) == 2
        assert len(feishu.answers(asked.chat)) == 5


async def _send(adapter: FeishuAdapter, place: ReplyTarget, key: str) -> None:
    await adapter.send(place, "hi", key=key)


async def test_a_token_that_stays_refused_is_no_endless_loop() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", status=400, code=99991663, times=10)
        error = await failure(adapter, place_of(asked))
        assert error.refused
        assert error.retryable
        assert len(feishu.calls("message.reply")) == 2


async def test_a_short_lived_token_is_renewed_before_it_expires() -> None:
    async with FakeFeishu(token_s=0.0) as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.rest.token_s = 7200
        await adapter.send(place_of(asked), "one", key="k1")
        await adapter.send(place_of(asked), "two", key="k2")
        assert len(feishu.calls("token")) == 1


async def test_a_refused_card_is_sent_without_markup() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.fail("message.reply", status=400, code=230099)
        card = await adapter.send(place_of(asked), "**hi**", key="k1")
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["**hi**"]
        feishu.fail("message.patch", status=400, code=230099)
        await adapter.update_streaming(place_of(asked), card, "**ho**", final=True)
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["**ho**"]
        tags = [
            json.loads(str(call.body["content"]))["body"]["elements"][0]["tag"]
            for call in _card_calls(feishu)
        ]
        assert tags == ["markdown", "div", "markdown", "div"]


def _card_calls(feishu: FakeFeishu) -> list[FeishuCall]:
    return [*feishu.calls("message.reply"), *feishu.calls("message.patch")]


async def test_long_answers_are_cut_into_cards_that_the_platform_takes() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    markdown = "\n\n".join(["# Title", *[f"{n} " + "word " * 400 for n in range(40)], *[table] * 7])
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        feishu.rest.sends_per_s = 100
        pieces = adapter.split(markdown)
        assert len(pieces) > 1
        for number, piece in enumerate(pieces):
            await adapter.send(place_of(asked), piece, key=f"k{number}")
        assert len(feishu.answers(asked.chat)) == len(pieces)
        assert feishu.violations == []


@pytest.mark.parametrize(
    "text",
    [
        "\ud83d lone",
        "a\x00b",
        "<at id=all></at> @_all",
        "![x](http://x/y.png)",
        "```\nopen",
        "![](",
        "`![x](y)`",
    ],
)
async def test_hostile_answers_make_good_cards(text: str) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), text, key="k1")
        await adapter.update_streaming(place_of(asked), card, text, final=True)
        (answer,) = feishu.answers(asked.chat)
        assert "<at" not in answer.text
        assert feishu.violations == []


@pytest.mark.parametrize(("ok", "sign"), [(True, "DONE"), (False, "CrossMark")])
async def test_a_finished_turn_replaces_the_working_reaction(ok: bool, sign: str) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("work")
        await adapter.show_working(place_of(asked))
        await adapter.show_working(place_of(asked))
        assert asked.emojis == ["OK"]
        await adapter.show_finished(place_of(asked), ok=ok)
        assert asked.emojis == [sign]
        assert feishu.violations == []


async def test_signs_of_an_earlier_process_go_too() -> None:
    async with FakeFeishu() as feishu:
        asked = await feishu.dm("work")
        await adapter_for(feishu).show_working(place_of(asked))
        await adapter_for(feishu).show_finished(place_of(asked), ok=True)
        assert asked.emojis == ["DONE"]
        await adapter_for(feishu).show_finished(place_of(asked), ok=True)
        assert asked.emojis == ["DONE"]
        assert feishu.violations == []


async def test_an_outcome_that_was_refused_halfway_can_be_shown_again() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("work")
        await adapter.show_working(place_of(asked))
        feishu.fail("reaction.delete", drop="after")
        feishu.fail("reaction.create", status=502, text="bad gateway")
        for _ in range(2):
            with pytest.raises(DeliveryError):
                await adapter.show_finished(place_of(asked), ok=True)
        await adapter.show_finished(place_of(asked), ok=True)
        assert asked.emojis == ["DONE"]
        assert feishu.violations == []


async def test_signs_are_shown_without_the_permission_to_list_them() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes -= {"im:message:readonly"}
        asked = await feishu.dm("work")
        await adapter_for(feishu).show_finished(place_of(asked), ok=True)
        assert asked.emojis == ["DONE"]


async def test_signs_without_a_message_do_nothing() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        await adapter.show_working(ReplyTarget(chat="oc_1"))
        await adapter.show_finished(ReplyTarget(chat="oc_1"), ok=True)
        assert feishu.calls("reaction.create") == []


async def test_calls_share_connections_while_running_and_still_work_afterwards() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake()):
            asked = await feishu.dm("hello")
            await adapter.send(place_of(asked), "hi", key="k1")
        await adapter.send(place_of(asked), "a last word", key="k2")
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["hi", "a last word"]


async def test_stopping_waits_for_a_send_that_is_under_way() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        feishu.fail("message.reply", delay_s=0.1)
        async with anyio.create_task_group() as tasks, running(adapter, RecordingIntake()):
            asked = await feishu.dm("hello")
            tasks.start_soon(_send, adapter, place_of(asked), "k1")
            await feishu.wait_for(lambda: feishu.calls("message.reply"))
        assert [answer.text for answer in feishu.answers(asked.chat)] == ["hi"]


@pytest.mark.parametrize("code", [230027, 99991672, 230001])
async def test_a_card_that_may_not_be_changed_gives_way_to_a_new_message(code: int) -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes.add("im:message:recall")
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), "", key="k1")
        feishu.fail("message.patch", status=400, code=code)
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place_of(asked), card, "done", final=True)
        assert caught.value.target_gone
        assert feishu.answers(asked.chat) == []


@pytest.mark.parametrize("code", [230025, 230028, 230002])
async def test_errors_that_a_new_message_would_meet_too_are_raised(code: int) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        card = await adapter.start_streaming(place_of(asked), "", key="k1")
        feishu.fail("message.patch", status=400, code=code)
        with pytest.raises(FeishuError) as caught:
            await adapter.update_streaming(place_of(asked), card, "done", final=True)
        assert (caught.value.target_gone, caught.value.retryable) == (False, False)
        assert len(feishu.answers(asked.chat)) == 1


CODE = "```python\n" + "\n".join(f"value_{n} = {n}" for n in range(3000)) + "\n```"


async def test_very_long_code_is_sent_as_a_file() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        before, code, after = adapter.split(f"See:\n\n{CODE}\n\nThat is all.")
        assert (before, after) == ("See:", "That is all.")
        await adapter.send(place_of(asked), code, key="k1")
        await adapter.send(place_of(asked), code, key="k1")
        (answer,) = feishu.answers(asked.chat)
        kind, name, data = feishu.files[answer.content["file_key"]]
        assert (answer.type, kind, name) == ("file", "stream", "code.py")
        assert data.decode() == CODE.removeprefix("```python\n").removesuffix("\n```")
        assert feishu.violations == []


async def test_a_card_of_very_long_code_grows_by_its_newest_lines_and_becomes_a_file() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        place = place_of(asked)
        card = await adapter.start_streaming(place, "…", key="k1")
        await adapter.update_streaming(place, card, CODE.removesuffix("\n```"), final=False)
        assert "value_2999 = 2999" in feishu.answers(asked.chat)[0].text
        assert feishu.answers(asked.chat)[0].text.startswith("```python\n")
        wide = "```\n" + '字"\\\n' * 200_000
        await adapter.update_streaming(place, card, wide, final=False)
        for _ in range(2):  # as after a crash
            await adapter.update_streaming(place, card, CODE, final=True)
        shown, file = feishu.answers(asked.chat)
        assert (shown.text, file.type) == ("📎 code.py", "file")
        assert feishu.violations == []


async def test_an_edit_of_a_card_whose_code_is_a_file_keeps_it_that_way() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        place = place_of(asked)
        card = await adapter.start_streaming(place, "…", key="k1")
        await adapter.update_streaming(place, card, CODE, final=True)
        await adapter.edit_message(place, card, CODE)
        shown, file = feishu.answers(asked.chat)
        assert (shown.text, file.type) == ("📎 code.py", "file")
        assert feishu.violations == []


async def test_very_long_code_goes_in_cards_where_files_are_refused() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes -= {"im:resource"}
        adapter = adapter_for(feishu)
        asked = await feishu.dm("hello")
        with pytest.raises(MessageTooLong) as refused:
            await adapter.send(place_of(asked), CODE, key="k1")
        for number, piece in enumerate(refused.value.pieces):
            await adapter.send(place_of(asked), piece, key=f"k1+{number}")
        said = "\n".join(answer.text for answer in feishu.answers(asked.chat))
        assert all(f"value_{n} = {n}\n" in said for n in range(3000))
        assert feishu.violations == []


def test_the_bus_stays_below_a_chats_rate_limit() -> None:
    numbers = adapter_for(FakeFeishu()).capabilities
    assert numbers.send_burst + int(1 / numbers.send_interval_s) <= 5


@pytest.mark.parametrize("trouble", [{"status": 200, "text": "junk"}, {"status": 502}], ids=str)
async def test_a_broken_platform_is_called_less_and_less_often(trouble: dict[str, Any]) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, streaming=False)
        asked = await feishu.dm("hello")
        sent = await adapter.start_streaming(place_of(asked), "…", key="k")
        feishu.fail("message.patch", times=6, **trouble)
        waits = []
        for number in range(6):
            with pytest.raises(DeliveryError) as caught:
                await adapter.update_streaming(place_of(asked), sent, f"a {number}", final=False)
            assert caught.value.retryable
            waits.append(caught.value.retry_after_s or 0.0)
        assert waits == sorted(waits)
        assert (0.4 <= waits[0] <= 0.5, 13 <= waits[5] <= 15) == (True, True)
        await adapter.update_streaming(place_of(asked), sent, "a b", final=False)
        feishu.fail("message.patch", **trouble)
        with pytest.raises(DeliveryError) as caught:
            await adapter.update_streaming(place_of(asked), sent, "a b c", final=False)
        assert (caught.value.retry_after_s or 0.0) <= 0.5
