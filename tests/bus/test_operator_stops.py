"""An operator stops turns: the chat gets one line about it, however much of the answer it has seen."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from bus.locales import messages_for
from bus.locales.en import ENGLISH
from bus.messages import decode_inbound, encode_inbound
from store.inbox import InboxRow
from tests.bus.harness import OPEN, BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform, FakePlatform

HANGING = Script(words=("one ", "two"), hang_after=1)


async def rows_of(harness: BusHarness) -> list[InboxRow]:
    """Return the unfinished messages in order."""
    return await harness.bus.inbox.list_unfinished()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
async def test_a_turn_of_which_nothing_was_seen_ends_with_a_word(
    tmp_path: Path, language: str
) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(HANGING)
        await harness.send("hello", language=language)
        await harness.wait_for_runs(1)
        [row] = await rows_of(harness)
        assert await harness.bus.stop_message(row.id)
        await eventually(lambda: len(harness.platform.texts) == 1)
        assert messages_for(language).stopped_by_operator in harness.platform.texts[0]
        await harness.wait_until_finished()
        [ended] = await harness.bus.inbox.list_recent(limit=1)
        assert ended.outcome == "stopped"
        assert not await harness.bus.stop_message(row.id)
        await harness.send("again")
        await eventually(lambda: harness.platform.texts[1:] == ["Hello you"])


async def test_what_was_seen_of_the_answer_says_who_stopped_it(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake", notice_after_s=0.01)
    async with running_bus(tmp_path, platform=platform) as harness:
        harness.server.scripts.append(HANGING)
        await harness.send("hello")
        await platform.until(1)
        [row] = await rows_of(harness)
        await harness.bus.stop_message(row.id)
        await eventually(lambda: ENGLISH.stopped_by_operator in platform.texts[0])
        await harness.wait_until_finished()
        assert len(platform.texts) == 1


async def test_a_waiting_message_is_told_at_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("first")
        await harness.send("one")
        await harness.wait_for_runs(1)
        await harness.send("two")
        await harness.bus.stop_message((await rows_of(harness))[1].id)
        await eventually(lambda: harness.platform.texts == [ENGLISH.stopped_by_operator])
        gate.set()
        await harness.expect_replies(ENGLISH.stopped_by_operator, "first")
        assert harness.prompts() == ["one"]


@pytest.mark.parametrize(("stopped", "said"), [(0, "Hello you"), (1, "first")])
async def test_after_a_crash_the_chat_is_still_told(
    tmp_path: Path, stopped: int, said: str
) -> None:
    """The process is killed after the stop of the running or waiting message was stored, and before its turn ended."""
    platform = FakePlatform()
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, platform=platform, server=server) as harness:
            gate = harness.hold_next_run("first")
            await harness.send("one")
            await harness.wait_for_runs(1)
            await harness.send("two")
            row = (await rows_of(harness))[stopped]
            asked = decode_inbound(row.body)
            noted = replace(asked, is_stopped=True, is_stopped_by_operator=True)
            assert await harness.bus.inbox.update_body(row.id, encode_inbound(noted))
        async with running_bus(tmp_path, platform=platform, server=server) as harness:
            gate.set()
            await harness.wait_until_finished()
            await harness.expect_replies(ENGLISH.stopped_by_operator, said)


async def test_people_who_talk_to_each_other_are_told_nothing(tmp_path: Path) -> None:
    policy = OPEN.model_copy(update={"group_policy": "open"})
    async with running_bus(tmp_path, policy=policy) as harness:
        harness.server.scripts.append(HANGING)
        await harness.send("so, Bob", is_private=False, is_addressed=False)
        await harness.wait_for_runs(1)
        [row] = await rows_of(harness)
        assert await harness.bus.stop_message(row.id)
        await harness.wait_until_finished()
        await harness.send("bot?", is_private=False)
        await harness.expect_replies("Hello you")


async def test_a_run_that_a_client_of_the_api_cancels_ends_with_a_word(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(HANGING)
        await harness.send("hello")
        await harness.wait_for_runs(1)
        [run] = harness.server.runs
        async with httpx.AsyncClient(base_url=harness.server.url) as client:
            await client.post(f"/threads/{run.thread_id}/runs/{run.run_id}/cancel")
        await eventually(lambda: len(harness.platform.texts) == 1)
        assert ENGLISH.stopped_by_operator in harness.platform.texts[0]
        [ended] = await harness.bus.inbox.list_recent(limit=1)
        assert ended.outcome == "stopped"
