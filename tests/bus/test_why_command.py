"""/why: admins learn why messages were not answered; others do not."""

from pathlib import Path

import pytest

from bots.config import TerminalConfig
from bus.config import ChannelPolicy
from bus.hooks.config import HookConfig
from bus.hooks.hooks import HookRequest
from bus.recurrence import format_moment
from bus.voice.stats import PER_CHAT
from tests.bus.harness import running_bus
from tests.bus.test_schedules import HOUR, moment, plan
from tests.eventually import eventually
from tests.hook_senders import SECRET, signed_by_github

POLICY = ChannelPolicy(dm_policy="open", admin_users=["root"])
OURS = {"chat": "g", "is_private": False}


async def test_an_admin_learns_why_messages_were_not_answered(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("hey all", **OURS, is_addressed=False, user="ann")
        await harness.send(" ", **OURS, user="ben")
        await harness.send("elsewhere", chat="h", is_private=False, is_addressed=False)
        await harness.send("/why", **OURS, user="root")
        await eventually(lambda: harness.platform.texts)
        here, first, second, channel, *counts = harness.platform.texts[0].splitlines()
        assert here == "Not accepted in this chat, newest first:"
        assert first.startswith("• 1970-01-")
        assert first.endswith(" UTC, from `ben`: `empty` (it had no content)")
        assert "from `ann`: `not_addressed`" in second
        assert channel == "Not accepted on fake in the last 7 days:"
        assert counts[0] == "• 2 × `not_addressed` (in a group, and not addressed to the bot)"
        assert counts[1:] == ["• 1 × `empty` (it had no content)"]


async def test_why_knows_the_last_refusals_after_a_restart_and_at_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        for number in range(PER_CHAT + 1):
            await harness.send("hey", **OURS, is_addressed=False, user=f"p{number}")
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send(" ", **OURS, event="later", user="ben")
        await harness.send("/why", **OURS, event="why", user="root")
        await eventually(lambda: harness.platform.texts)
        _, *here, channel, first, second = harness.platform.texts[0].splitlines()
        assert ["`ben`" in line for line in here] == [True, *[False] * (PER_CHAT - 1)]
        assert channel == "Not accepted on fake in the last 7 days:"
        assert first.startswith(f"• {PER_CHAT + 1} × `not_addressed`")
        assert second.startswith("• 1 × `empty`")


async def test_why_lists_nothing_if_nothing_was_refused(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("/why", user="root")
        await harness.expect_replies(
            "Not accepted in this chat, newest first:\n• nothing\n"
            "Not accepted on fake in the last 7 days:\n• nothing"
        )


async def test_why_answers_only_admins(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=POLICY) as harness:
        await harness.send("/why", user="ann")
        await harness.expect_replies("Only admins can use this command.")


@pytest.mark.parametrize(
    ("language", "first", "second", "head"),
    [
        (
            "en",
            "webhook pushes · event push · delivery 1",
            "schedule “the news”, set up by u · due ",
            "Sent to this chat by schedules and webhooks, newest first:",
        ),
        (
            "zh",
            "由 webhook pushes 触发 · 事件 push · 投递 ID 1",
            "定时任务“the news”（由 u 设置） · 应执行时间 ",
            "定时任务和 webhook 发送到本聊天的消息（由新到旧）：",
        ),
    ],
)
async def test_everybody_learns_which_schedule_or_hook_caused_an_answer(
    tmp_path: Path, language: str, first: str, second: str, head: str
) -> None:
    pushes = HookConfig(secret=SECRET, channel="fake", chat="c", prompt="{event}", form="github")
    async with running_bus(tmp_path, policy=POLICY) as harness:
        schedule = await plan(harness, moment(harness, HOUR), chat="c")
        harness.clock.ahead += HOUR + 1
        await harness.expect_replies("Hello you")
        harness.bus.hooks.configure({"pushes": pushes})
        headers, body = signed_by_github({}, "1", "push")
        await harness.bus.hooks.receive("pushes", HookRequest(headers=headers, body=body))
        await eventually(lambda: len(harness.platform.texts) == 2)
        await harness.send("/why", chat="c", user="ann", language=language)
        await eventually(lambda: len(harness.platform.texts) == 3)
        told, *lines = harness.platform.texts[2].splitlines()
        assert told == head
        assert lines[0].endswith(f" UTC · {first}")
        due = format_moment(float(schedule.next_at or 0), "UTC")
        assert lines[1].endswith(f" UTC · {second}{due}")
        await harness.bus.schedules.delete(schedule.id)
        await harness.send("/why", chat="c", user="root", language=language)
        await eventually(lambda: len(harness.platform.texts) == 4)
        known = harness.platform.texts[3].splitlines()
        assert known[-3:-1] == [head, lines[0]]
        assert known[-1] == lines[1].replace("the news", schedule.id)


async def test_nobody_is_an_admin_unless_named(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("/why", user="")
        await harness.expect_replies("Only admins can use this command.")
    assert TerminalConfig().admin_users == ["local"]
