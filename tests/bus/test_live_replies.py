"""The display of a turn before its answer: stop buttons, drafts, working messages, lines of progress."""

from dataclasses import replace
from pathlib import Path

import anyio

from bus.errors import DeliveryError
from bus.locales import messages_for
from bus.messages import encode_inbound
from bus.outbound.live_reply import WORKING_TEXT
from store.config import StoreConfig
from store.database import Database
from store.message_history import MessageHistoryStore, ReceivedEvent
from tests.bus.test_streaming_message import frames, showing
from tests.bus.test_turn import turn_harness
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.platform import ButtonPlatform, CardPlatform, PreviewPlatform

WORDS = messages_for("en")
STOP = "stop:1:0"


async def test_a_card_has_the_stop_button_until_it_is_the_answer(tmp_path: Path) -> None:
    platform = CardPlatform()
    async with turn_harness(tmp_path, platform) as h:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        turn = await h.accept_turn("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            await platform.until(1)
            assert [button.token for button in platform.shown[0].buttons] == [STOP]
            await eventually(lambda: bool(platform.frames))
            assert [button.token for button in platform.shown[0].buttons] == [STOP]
            turn.control.cancel()
        await eventually(lambda: platform.shown[0].final)
    assert platform.shown[0].buttons == ()
    assert platform.texts == [f"Hel\n\n{WORDS.stopped}"]


async def test_only_the_last_card_can_be_stopped(tmp_path: Path) -> None:
    platform = CardPlatform(patch_interval_s=0.01)
    async with showing(platform, tmp_path) as shown:
        shown.update(lambda: "a" * 800 + "b" * 100)
        await frames(platform, 2)
        assert [bool(message.buttons) for message in platform.shown] == [False, True]


async def test_progress_is_below_the_text_and_needs_no_card_of_its_own(tmp_path: Path) -> None:
    platform = CardPlatform(patch_interval_s=0.01)
    async with showing(platform, tmp_path) as shown:
        shown.update(lambda: "words", lambda words: f"> {words.button_stop}")
        assert await frames(platform, 1) == [f"words\n\n> {WORDS.button_stop}"]
        shown.update(lambda: "a" * 795, lambda _: "> longer than what is left")
        assert (await frames(platform, 2))[1] == "a" * 795
        shown.update(str, lambda _: "> at work")
        assert (await frames(platform, 3))[2] == "> at work"
    assert len(platform.shown) == 1


async def test_a_private_answer_is_previewed_and_then_sent_once(tmp_path: Path) -> None:
    platform = PreviewPlatform()
    platform.fail("preview", DeliveryError("later", retryable=True, retry_after_s=0.01))
    async with turn_harness(tmp_path, platform) as h:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        turn = await h.accept_turn("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            await eventually(lambda: any(text == "Hel" for _, text, _ in platform.previewed))
            turn.control.cancel()
        seen = len(platform.previewed)
        await h.answer("again", "e2")
        await platform.until(1)
    assert {(key, stop.token) for key, _, stop in platform.previewed[:seen]} == {
        ("1:preview", STOP)
    }
    # The turn was stopped before anything was sent, so the draft disappears by itself.
    assert platform.texts == ["Hello you"]


async def test_previews_end_when_they_are_no_longer_useful(tmp_path: Path) -> None:
    platform = PreviewPlatform()
    platform.fail("preview", DeliveryError("never"), times=100)
    async with turn_harness(tmp_path, platform) as h:
        await h.answer("hi")
        await platform.until(1)
    assert platform.calls.count("preview") == 1
    assert platform.texts == ["Hello you"]


async def test_a_long_turn_gets_a_working_message_that_goes_when_the_answer_came(
    tmp_path: Path,
) -> None:
    platform = ButtonPlatform(notice_after_s=0.02)
    async with turn_harness(tmp_path, platform) as h:
        gate = anyio.Event()
        h.server.scripts.append(Script(gate=gate))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.answer, "hi")
            await platform.until(1)
            gate.set()
        await eventually(lambda: bool(platform.removed))
    assert [(m.text, [b.token for b in m.buttons]) for m in platform.shown] == [
        (WORDS.working, [STOP]),
        ("Hello you", []),
    ]
    assert platform.removed == ["m1"]
    assert platform.calls[-1] == "remove"


async def test_a_short_turn_shows_nothing_but_its_answer(tmp_path: Path) -> None:
    platform = ButtonPlatform(notice_after_s=30.0)
    async with turn_harness(tmp_path, platform) as h:
        await h.answer("hi")
        await platform.until(1)
    assert (platform.texts, platform.removed) == (["Hello you"], [])


async def test_a_stopped_turn_says_so_in_its_working_message(tmp_path: Path) -> None:
    platform = ButtonPlatform(notice_after_s=0.01)
    async with turn_harness(tmp_path, platform) as h:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        turn = await h.accept_turn("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            await platform.until(1)
            turn.control.cancel()
        await eventually(lambda: WORDS.stopped in platform.texts[0])
    assert platform.removed == []
    assert len(platform.shown) == 1
    assert platform.shown[0].buttons == ()


async def test_the_working_message_of_an_earlier_process_goes_as_well(tmp_path: Path) -> None:
    platform = ButtonPlatform(notice_after_s=0.01)
    async with turn_harness(tmp_path, platform) as h:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        turn = await h.accept_turn("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run)
            await platform.until(1)
            tasks.cancel_scope.cancel()
    async with turn_harness(tmp_path, platform) as h:
        turn = await h.restarted()
        await turn.run()
        await eventually(lambda: bool(platform.removed))
    assert [text for text in platform.texts if text == WORDS.working] == [WORDS.working]
    assert platform.texts[-1] == "Hello you"


async def test_the_working_message_of_an_earlier_process_goes_after_an_edit_too(
    tmp_path: Path,
) -> None:
    """An edit resets the count of attempts, so a count of 0 does not mean that nothing was shown."""
    platform = ButtonPlatform(notice_after_s=0.01)
    async with turn_harness(tmp_path, platform) as h:
        h.server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        row, inbound = await h.accept("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(h.turn(row, inbound).run)
            await platform.until(1)
            tasks.cancel_scope.cancel()
    async with Database.open(StoreConfig(), tmp_path) as database:
        edited = encode_inbound(replace(inbound, text="hi there", edit_count=1))
        event = ReceivedEvent(key=row.key, event_id="edit", at=2.0)
        history = MessageHistoryStore(database)
        assert await history.update_body(row.id, edited, event, reset_starts=True)
    quick = ButtonPlatform(notice_after_s=30.0)  # this time the answer comes before any notice
    quick.shown = platform.shown
    async with turn_harness(tmp_path, quick) as h:
        await (await h.restarted()).run()
        await eventually(lambda: bool(quick.removed))


async def test_a_card_says_that_work_began(tmp_path: Path) -> None:
    platform = CardPlatform()
    async with showing(platform, tmp_path):
        await platform.until(1)
        assert platform.texts == [WORKING_TEXT]
