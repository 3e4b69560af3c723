"""Answers to questions in groups that are not replies belong to the question's conversation (DeerFlow #3285)."""

from pathlib import Path

import pytest

from bus.access.expected_replies import EXPECTED_REPLY_S, ExpectedReplies
from bus.config import ChannelPolicy
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import ButtonPlatform

WHICH = Script(words=(), question="Which?", options=("red", "green"))
GROUP = ChannelPolicy(group_policy="mention")


async def asked(h: BusHarness) -> None:
    h.server.scripts.append(WHICH)
    await mention(h, "paint it")
    await h.wait_for_runs(1)
    await h.expect_replies("Which?")


async def mention(h: BusHarness, text: str, **changes: object) -> None:
    name = f"m{h.sent}"
    fields = {"event": name, "topic": name, "is_private": False, "track_replies": True} | changes
    await h.send(text, **fields)


def threads(h: BusHarness) -> list[str]:
    return [str(run.thread_id) for run in h.server.runs]


async def test_the_next_words_of_who_was_asked_are_the_answer(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=GROUP) as h:
        await asked(h)
        await mention(h, "2")
        await h.wait_for_runs(2)
        first, second = threads(h)
        assert first == second
        await mention(h, "something else")
        await h.wait_for_runs(3)
        assert threads(h)[2] != first


@pytest.mark.parametrize("changes", [{"user": "bob"}, {"chat": "d"}, {"replies_to": ("m77",)}])
async def test_other_people_and_other_chats_begin_a_new_conversation(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async with running_bus(tmp_path, platform=ButtonPlatform("fake"), policy=GROUP) as h:
        await asked(h)
        await mention(h, "2", **changes)
        await h.wait_for_runs(2)
        first, second = threads(h)
        assert first != second


async def test_an_answer_is_expected_after_a_restart(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(
            tmp_path, platform=ButtonPlatform("fake"), policy=GROUP, server=server
        ) as h:
            await asked(h)
            await mention(h, "good morning", user="bob", event="b0")
            await h.wait_for_runs(2)
            await h.wait_until_finished()
        async with running_bus(
            tmp_path, platform=ButtonPlatform("fake"), policy=GROUP, server=server
        ) as h:
            await mention(h, "me too", user="bob", event="b1", topic="b1")
            await h.wait_for_runs(3)
            await mention(h, "2", event="a1", topic="a1")
            await h.wait_for_runs(4)
            await h.wait_until_finished()
            await mention(h, "something else", event="a2", topic="a2")
            await h.wait_for_runs(5)
            threads_of = threads(h)
            assert threads_of[3] == threads_of[0]
            assert len({*threads_of}) == 4


def test_an_answer_is_expected_for_half_an_hour() -> None:
    now = [0.0]
    pending = ExpectedReplies(clock=lambda: now[0])
    asker = inbound_message("paint it", "a", topic="a", is_private=False, track_replies=True)
    pending.expect(asker, asker.key)
    plain = inbound_message("2", "b", topic="b", is_private=False, track_replies=True)
    assert pending.assign(plain).key == asker.key
    now[0] = EXPECTED_REPLY_S + 1
    assert pending.assign(plain) == plain


def test_messages_that_are_not_for_the_bot_are_ignored() -> None:
    pending = ExpectedReplies(clock=lambda: 0.0)
    asker = inbound_message("paint it", "a", topic="a", is_private=False, track_replies=True)
    pending.expect(asker, asker.key)
    plain = inbound_message(
        "2", "b", topic="b", is_private=False, track_replies=True, is_addressed=False
    )
    assert pending.assign(plain) == plain
    pending.clear(asker.key)
    plain = inbound_message("2", "b", topic="b", is_private=False, track_replies=True)
    assert pending.assign(plain) == plain
