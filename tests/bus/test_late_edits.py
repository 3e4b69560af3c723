"""If the platform carries out an edit after the answer, the edit does not stay visible (seed 2511002 of the proof)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from typing_extensions import override

from bus.errors import DeliveryError, MessageTooLong
from bus.messages import (
    Button,
    MessageId,
    OutboundEdit,
    OutboundText,
    ReplyTarget,
    decode_outbound,
)
from bus.outbound.rows import (
    REPEAT_EDIT_AFTER_S,
    LiveMessages,
    button_removal_row,
    repeated_edit_rows,
    reply_rows,
)
from bus.runs.replies import Reply
from tests.bus.harness import BusHarness, running_bus
from tests.bus.test_outbox_rows import INBOUND, ROW
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import CardPlatform


async def card_says(platform: CardPlatform, text: str) -> None:
    """Wait until the first card's latest text is this one."""
    await eventually(
        lambda: [(one.text, one.final) for one in platform.shown[:1]] == [(text, True)]
    )


async def pass_time(harness: BusHarness) -> None:
    """Let the repeated edit become due, and let the chat's task look for it."""
    harness.clock.ahead += REPEAT_EDIT_AFTER_S + 1
    await harness.send("/status", event="later")


async def repetitions(harness: BusHarness) -> int:
    rows = await harness.bus.outbox.list_recent()
    return sum(row.key.endswith(":again") for row in rows)


@asynccontextmanager
async def after_kill(folder: Path, platform: CardPlatform) -> AsyncIterator[BusHarness]:
    """Run the process that answers "hi" after an earlier one died when its card said "Hel"."""
    async with FakeLangGraph() as server:
        server.scripts.append(Script(words=("Hel", "lo"), hang_after=1))
        async with running_bus(folder, platform=platform, server=server) as harness:
            await harness.send("hi")
            await eventually(lambda: [text for _, text, _ in platform.frames] == ["Hel"])
        server.runs[0].status = "interrupted"
        async with running_bus(folder, platform=platform, server=server) as harness:
            yield harness


async def test_a_late_edit_of_a_killed_process_does_not_stay(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    async with after_kill(tmp_path, platform) as harness:
        await card_says(platform, "Hello you")
        platform.carry_out_again(0)
        assert platform.shown[0].text == "Hel"
        await pass_time(harness)
        await card_says(platform, "Hello you")
        assert platform.shown[0].buttons == ()


async def test_an_edit_of_unknown_outcome_may_come_late_as_well(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    unknown = DeliveryError("no answer", retryable=True, ambiguous=True)
    async with running_bus(tmp_path, platform=platform) as harness:
        ends = anyio.Event()
        harness.server.scripts.append(Script(ends=ends))
        platform.fail("patch", unknown, after_effect=True)
        await harness.send("hi")
        await eventually(lambda: platform.frames)
        ends.set()
        await card_says(platform, "Hello you")
        platform.carry_out_again(0)
        await pass_time(harness)
        await card_says(platform, "Hello you")


async def test_an_answer_whose_edits_were_all_confirmed_is_written_once(tmp_path: Path) -> None:
    platform = CardPlatform("fake")
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("hi")
        await card_says(platform, "Hello you")
        await harness.wait_until_finished()
        assert await repetitions(harness) == 0


class ShortCardPlatform(CardPlatform):
    """Discovers when a card gets its final text that the text needs several messages."""

    @override
    async def update_streaming(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        if final and " " in markdown:
            raise MessageTooLong(markdown.split(" "))
        await super().update_streaming(place, message, markdown, final=final, buttons=buttons)


async def test_an_answer_that_became_several_messages_is_not_written_into_one_again(
    tmp_path: Path,
) -> None:
    platform = ShortCardPlatform("fake")
    async with after_kill(tmp_path, platform) as harness:
        await eventually(lambda: platform.texts == ["Hello", "you"])
        assert await repetitions(harness) == 0


def test_texts_that_replace_cards_are_repeated_with_their_buttons_and_new_messages_are_not() -> (
    None
):
    rows = reply_rows(
        ROW, INBOUND, Reply(markdown=""), ["one", "two"], LiveMessages(streaming_count=1)
    )
    [again] = repeated_edit_rows(rows, now=100.0)
    body = decode_outbound(again.body)
    assert isinstance(body, OutboundEdit)
    assert (again.key, again.not_before) == ("7:reply:0:again", 100.0 + REPEAT_EDIT_AFTER_S)
    assert (body.target_key, body.markdown, body.buttons) == ("7:reply:0", "one", ())


def test_buttons_that_were_pressed_do_not_come_back() -> None:
    [first] = reply_rows(
        ROW, INBOUND, Reply(markdown=""), ["Go on?"], LiveMessages(streaming_count=1)
    )
    answer = decode_outbound(first.body)
    assert isinstance(answer, OutboundText)
    [again] = repeated_edit_rows([first], now=100.0)
    assert button_removal_row(ROW, answer, first.key, "Go on? ✓").supersedes == again.key
