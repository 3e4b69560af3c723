"""What each platform shows to people whose messages are refused, with the real adapters in private chats."""

from pathlib import Path

import anyio
import pytest

from bus.config import ChannelPolicy
from bus.locales.en import ENGLISH
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.faults.platform_turns import PLATFORMS, PlatformRig, RealTurn

MARKS_REFUSED = {"slack", "feishu"}
"""Platforms whose bots can react to messages."""

on_each_platform = pytest.mark.parametrize("platform", list(PLATFORMS))


async def _nothing(rig: PlatformRig) -> None:
    """Let the test write."""


HANGS = RealTurn(_nothing, Script(hang_after=1))
ANSWERS = RealTurn(_nothing)


def texts(rig: PlatformRig) -> list[str]:
    return [message.text for message in rig.shown() if not message.unfinished]


@on_each_platform
async def test_each_refused_message_is_reported_and_marked(tmp_path: Path, platform: str) -> None:
    async with PlatformRig(platform, tmp_path) as rig, rig.process(HANGS, max_queue=1):
        rig.begin(HANGS)
        await rig.say("hang")
        await rig.run_started()
        for number in range(4):
            await rig.say(f"more {number}")
            await eventually(rig.is_heard)
        first, rest = ENGLISH.queue_full.format(count=1), ENGLISH.refused_more.format(count=2)
        await eventually(
            lambda: [text for text in texts(rig) if text in (first, rest)] == [first, rest]
        )
        refused = rig.sent_ids()[2:]
        if platform in MARKS_REFUSED:
            await eventually(lambda: all(map(rig.user.has_failed_sign, refused)))


@on_each_platform
async def test_a_near_miss_of_a_command_is_answered_with_the_command(
    tmp_path: Path, platform: str
) -> None:
    async with PlatformRig(platform, tmp_path) as rig, rig.process(ANSWERS):
        rig.begin(ANSWERS)
        asked = await rig.say("/modle")
        # The answer to a Slack slash command is not in the chat's history.
        await eventually(
            lambda: any(
                "Did you mean" in one.text and "model" in one.text
                for one in (*rig.shown(), *asked.answers())
            )
        )
        assert rig.server.runs == []


@on_each_platform
async def test_people_without_access_get_one_line_in_private(tmp_path: Path, platform: str) -> None:
    policy = ChannelPolicy(dm_policy="allowlist", allowed_users=["somebody else"])
    turn = RealTurn(_nothing, policy=policy)
    async with PlatformRig(platform, tmp_path) as rig, rig.process(turn):
        rig.begin(turn)
        for text in ("hi", "hello?", "are you there?"):
            await rig.say(text)
            await eventually(rig.is_heard)
        await eventually(lambda: texts(rig) == [ENGLISH.not_allowed])
        await rig.settle()
        assert texts(rig) == [ENGLISH.not_allowed]
        assert rig.server.runs == []


@on_each_platform
async def test_answers_wait_while_the_credentials_are_revoked(
    tmp_path: Path, platform: str
) -> None:
    """Even after a restart. The next attempt is due a minute later, so the second process's clock is moved."""
    gate = anyio.Event()
    turn = RealTurn(_nothing, Script(gate=gate))
    async with PlatformRig(platform, tmp_path) as rig:
        async with rig.process(turn):
            rig.begin(turn)
            await rig.say("hi")
            await rig.run_started()
            renew = rig.revoke()
            gate.set()
            answered = rig.bus.bus.inbox.list_unfinished
            await eventually(answered, lambda rows: not rows)
            outbox = rig.bus.bus.outbox
            await eventually(outbox.list_open, lambda rows: any(row.error for row in rows))
            assert not any("Hello you" in text for text in texts(rig))
            # Nothing was sent, so the day after which an answer is given up has not begun.
            assert all(row.first_sent_at is None for row in await outbox.list_open())
        renew()
        async with rig.process(turn):
            await rig.settle()
            assert sum("Hello you" in text for text in texts(rig)) == 1
            failed = await rig.bus.bus.outbox.list_recent(states=["failed", "uncertain"])
            assert failed == []
