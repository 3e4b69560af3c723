"""Somebody addresses the bot in a thread that others began: it gets what was said there before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typing_extensions import override

from bots.slack.thread_history import MESSAGES
from bus.messages import ConversationKey, InboundMessage
from bus.platform import Disposition
from tests.bots.slack_rig import FAST, fast_slack, running
from tests.bots.test_slack_with_bus import serving
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.fakes.slack import BOT_USER, FakeSlack
from tests.fakes.slack_state import SlackMessage


@dataclass
class ConversationIntake(RecordingIntake):
    """Knows the conversations that it accepted an addressed message of."""

    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        return any(one.key == key for one in self.addressed)

    @property
    def addressed(self) -> list[InboundMessage]:
        """Each of them once, as it came first: Slack tells of a mention twice."""
        found: dict[str, InboundMessage] = {}
        for one in self.received:
            if one.is_addressed:
                found.setdefault(one.message_id, one)
        return list(found.values())


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[FakeSlack, ConversationIntake]]:
    intake = ConversationIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.person("UANN", profile={"display_name": "Ann", "real_name": "Ann Li"})
        yield slack, intake
    assert slack.violations == []


async def heard(intake: ConversationIntake, count: int = 1) -> InboundMessage:
    await eventually(lambda: len(intake.addressed) == count)
    return intake.addressed[-1]


async def test_what_was_said_before_comes_with_names_and_files() -> None:
    async with listening() as (slack, intake):
        picture = slack.file("error.png", b"png", "image/png")
        root = slack.say("The ferry is <late>.", user="UANN", files=[picture])
        slack.say("Again?\nReally?", user="U2BOB", thread_ts=root.ts)
        slack.bot_says("Ferry down", thread_ts=root.ts)
        slack.mention("why?", user="U2BOB", thread_ts=root.ts)
        slack.say("Later.", user="UANN", thread_ts=root.ts)
        message = await heard(intake)
        assert message.prompt.split("\n") == [
            "why?",
            "",
            "[Earlier in this thread]",
            "> Ann: The ferry is <late>.",
            "> [File: error.png]",
            "> U2BOB: Again?",
            "> Really?",
            "> U2OTHER: Ferry down",
        ]
        assert [file.name for file in message.attachments] == ["error.png"]


async def test_of_an_alert_without_text_its_attachments_are_quoted() -> None:
    async with listening() as (slack, intake):
        root = slack.bot_says("", attachments=[{"text": "CPU is *high*"}, {"fallback": "Disk"}])
        slack.mention("why?", thread_ts=root.ts)
        message = await heard(intake)
        assert message.prompt.split("\n")[3:] == ["> U2OTHER: CPU is *high*", "> Disk"]


async def test_a_conversation_that_goes_on_gets_nothing_twice() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        slack.mention("why?", thread_ts=root.ts)
        await heard(intake)
        slack.mention("and now?", thread_ts=root.ts)
        assert (await heard(intake, 2)).prompt == "and now?"


async def test_a_mention_alone_asks_about_the_thread_and_elsewhere_for_help() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        slack.mention("", thread_ts=root.ts)
        assert (await heard(intake)).prompt == "[Earlier in this thread]\n> Ann: The ferry is late."
        slack.mention("", thread_ts=root.ts)
        assert (await heard(intake, 2)).prompt == "/help"
        slack.mention("")
        assert (await heard(intake, 3)).prompt == "/help"


async def test_a_message_that_begins_its_thread_and_commands_read_nothing() -> None:
    async with listening() as (slack, intake):
        slack.mention("hello")
        root = slack.say("The ferry is late.", user="UANN")
        slack.mention("/status", thread_ts=root.ts)
        slack.dm("hi", thread_ts="1.000001")
        await heard(intake, 3)
        assert {one.prompt for one in intake.addressed} == {"hello", "/status", "hi"}
        assert slack.asked("conversations.replies") == []


async def test_of_a_long_thread_the_beginning_and_the_end_are_read() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        said = [slack.say(f"Reply {n}.", user="UANN", thread_ts=root.ts) for n in range(250)]
        slack.mention("why?", thread_ts=root.ts)
        lines = (await heard(intake)).prompt.split("\n")[3:]
        assert lines[0] == "> Ann: The ferry is late."
        newest = [f"> Ann: {one.text}" for one in said[-MESSAGES + 1 :]]
        assert lines[1:] == newest


@pytest.mark.parametrize("code", ["missing_scope", "ratelimited"])
async def test_a_thread_that_cannot_be_read_is_answered_all_the_same(code: str) -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        slack.fail("conversations.replies", error=code)
        slack.mention("why?", thread_ts=root.ts)
        assert (await heard(intake)).prompt == "why?"


async def test_a_thread_is_not_waited_for_beyond_its_time() -> None:
    intake = ConversationIntake()
    hurried = replace(FAST, thread_s=0.05)
    async with fast_slack() as slack, running(slack, intake, timeouts=hurried):
        root = slack.say("The ferry is late.", user="UANN")
        slack.fail("conversations.replies", delay_s=30.0)
        slack.mention("why?", thread_ts=root.ts)
        assert (await heard(intake)).prompt == "why?"


def is_answered(slack: FakeSlack, message: SlackMessage) -> bool:
    return slack.reactions(message) == {"white_check_mark"}


async def test_the_agent_reads_it_once(tmp_path: Path) -> None:
    async with fast_slack() as slack, serving(slack, tmp_path) as harness:
        root = slack.say("The ferry is late.", user="UANN")
        first = slack.mention("why?", thread_ts=root.ts)
        await eventually(lambda: is_answered(slack, first))
        second = slack.mention("and now?", thread_ts=root.ts)
        await eventually(lambda: is_answered(slack, second))
        assert harness.prompts() == [
            "why?\n\n[Earlier in this thread]\n> UANN: The ferry is late.",
            "and now?",
        ]
    assert slack.violations == []


async def test_an_edit_keeps_it_also_in_another_process(tmp_path: Path) -> None:
    async with fast_slack() as slack:
        async with serving(slack, tmp_path) as harness:
            root = slack.say("The ferry is late.", user="UANN")
            asked = slack.mention("wy?", thread_ts=root.ts)
            await eventually(lambda: is_answered(slack, asked))
            before = harness.prompts()[0]
        async with serving(slack, tmp_path) as harness:
            slack.edit(asked, "why?")
            offer = await slack.wait_for(lambda: _offers(slack))
            slack.press(offer[0], "Run again with the edit")
            await eventually(lambda: len(harness.prompts()) == 1)
            assert harness.prompts()[0] == before.replace("wy?", "why?", 1)
    assert slack.violations == []


def _offers(slack: FakeSlack) -> list[SlackMessage]:
    return [one for one in slack.messages("C1") if "Run again with the edit" in one.buttons]


async def test_an_edit_that_mentions_the_bot_gets_the_thread(tmp_path: Path) -> None:
    async with fast_slack() as slack, serving(slack, tmp_path) as harness:
        root = slack.say("The ferry is late.", user="UANN")
        said = slack.say("why?", thread_ts=root.ts)
        slack.edit(said, f"<@{BOT_USER}> why?", marked=True)
        await eventually(lambda: len(harness.prompts()) == 1)
        assert harness.prompts() == ["why?\n\n[Earlier in this thread]\n> UANN: The ferry is late."]
    assert slack.violations == []


async def test_a_mention_alone_is_about_the_thread_and_nothing_else(tmp_path: Path) -> None:
    async with fast_slack() as slack, serving(slack, tmp_path) as harness:
        root = slack.say("The ferry is late.", user="UANN")
        asked = slack.mention("", thread_ts=root.ts)
        await eventually(lambda: is_answered(slack, asked))
        # Slack tells of it twice.
        await eventually(lambda: harness.bus.counters()["slack", Disposition.DUPLICATE] == 1)
        assert harness.prompts() == ["[Earlier in this thread]\n> UANN: The ferry is late."]
        assert len(slack.texts("C1")) == 1
    assert slack.violations == []
