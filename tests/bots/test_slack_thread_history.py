"""A person mentions the bot in a thread that other people started: the bot gets the earlier messages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typing_extensions import override

from bots.slack.thread_history import CUT_NOTE, MESSAGE_CHARS, MESSAGES
from bus.messages import ConversationKey, InboundMessage, MessageEdit, ReplyTarget
from bus.platform import Disposition
from gateway.playground.slack.server import BOT_USER, FakeSlack
from gateway.playground.slack.state import SlackMessage
from store.errors import StoreError
from tests.bots.slack_rig import FAST, fast_slack, running
from tests.bots.test_slack_with_bus import serving
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake


@dataclass
class ConversationIntake(RecordingIntake):
    """Knows the conversations in which it accepted a message to the bot since the last /new."""

    @override
    async def has_conversation(self, key: ConversationKey) -> bool:
        texts = [one.text for one in self.addressed if one.key == key]
        return bool(texts) and texts[-1] != "/new"

    @property
    def addressed(self) -> list[InboundMessage]:
        """Return each message once, in its first form, because Slack reports a mention twice."""
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


async def test_earlier_messages_of_a_thread_are_quoted_with_names_and_files() -> None:
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


async def test_attachments_of_an_alert_without_text_are_quoted() -> None:
    async with listening() as (slack, intake):
        root = slack.bot_says("", attachments=[{"text": "CPU is *high*"}, {"fallback": "Disk"}])
        slack.mention("why?", thread_ts=root.ts)
        message = await heard(intake)
        assert message.prompt.split("\n")[3:] == ["> U2OTHER: CPU is *high*", "> Disk"]


async def test_a_continued_conversation_gets_no_message_twice() -> None:
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
        slack.dm("hi")
        slack.dm("/status", thread_ts="1.000001")
        await heard(intake, 4)
        assert {one.prompt for one in intake.addressed} == {"hello", "/status", "hi"}
        assert slack.asked("conversations.replies") == []


async def test_only_the_beginning_and_the_end_of_a_long_thread_are_read() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        said = [slack.say(f"Reply {n}.", user="UANN", thread_ts=root.ts) for n in range(250)]
        slack.mention("why?", thread_ts=root.ts)
        lines = (await heard(intake)).prompt.split("\n")[3:]
        assert lines[0] == "> Ann: The ferry is late."
        newest = [f"> Ann: {one.text}" for one in said[-MESSAGES + 1 :]]
        assert lines[1:] == newest


async def test_the_first_message_is_quoted_whole_and_others_are_shortened() -> None:
    async with listening() as (slack, intake):
        root = slack.say("r" * 9_000, user="UANN")
        slack.say("s" * 9_000, user="UANN", thread_ts=root.ts)
        slack.mention("why?", thread_ts=root.ts)
        first, second = (await heard(intake)).quoted.split("\n")[1:]
        assert first == f"> Ann: {'r' * 9_000}"
        assert second == f"> Ann: {'s' * MESSAGE_CHARS}…"


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


async def test_a_thread_that_could_be_read_only_in_part_is_quoted_and_marked() -> None:
    async with listening() as (slack, intake):
        slack.server.methods.page_size = 2
        root = slack.say("The ferry is late.", user="UANN")
        slack.say("Reply 1.", user="UANN", thread_ts=root.ts)
        slack.say("Reply 2.", user="UANN", thread_ts=root.ts)
        slack.fail("conversations.replies", delay_s=0.0)  # The first page arrives.
        slack.fail("conversations.replies", status=429, headers={"Retry-After": "30"})
        slack.mention("why?", thread_ts=root.ts)
        assert (await heard(intake)).prompt.split("\n")[2:] == [
            "[Earlier in this thread]",
            "> Ann: The ferry is late.",
            "> Ann: Reply 1.",
            CUT_NOTE,
        ]


@pytest.mark.parametrize(
    "trouble", [{"status": 503}, {"delay_s": 30.0}, {"drop": "before"}], ids=str
)
async def test_also_if_the_next_page_does_not_come_in_time(trouble: dict[str, object]) -> None:
    intake = ConversationIntake()
    hurried = replace(FAST, thread_s=1.0)
    async with fast_slack() as slack, running(slack, intake, timeouts=hurried):
        slack.server.methods.page_size = 1
        root = slack.say("The ferry is late.", user="UANN")
        slack.say("Reply 1.", user="UANN", thread_ts=root.ts)
        slack.fail("conversations.replies", delay_s=0.0)
        slack.fail("conversations.replies", times=9, **trouble)  # type: ignore[arg-type]
        slack.mention("why?", thread_ts=root.ts)
        earlier = (await heard(intake)).quoted.split("\n")
        assert earlier[1:] == ["> UANN: The ferry is late.", CUT_NOTE]


async def test_a_thread_that_could_not_be_read_is_read_for_the_next_message() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        slack.fail("conversations.replies", error="ratelimited")
        slack.mention("why?", thread_ts=root.ts)
        await heard(intake)
        slack.mention("and now?", thread_ts=root.ts)
        assert "> Ann: The ferry is late." in (await heard(intake, 2)).quoted
        slack.mention("and then?", thread_ts=root.ts)
        assert (await heard(intake, 3)).quoted == ""


async def test_after_new_the_first_message_of_the_thread_is_quoted_and_what_followed() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        slack.say("A secret.", user="UANN", thread_ts=root.ts)
        slack.mention("why?", thread_ts=root.ts)
        await heard(intake)
        slack.mention("/new", thread_ts=root.ts)
        slack.say("By an hour.", user="UANN", thread_ts=root.ts)
        slack.mention("what is this about?", thread_ts=root.ts)
        assert (await heard(intake, 3)).quoted.split("\n") == [
            "[Earlier in this thread]",
            "> Ann: The ferry is late.",
            "> Ann: By an hour.",
        ]
        slack.mention("and now?", thread_ts=root.ts)
        assert (await heard(intake, 4)).quoted == ""


async def test_after_new_the_question_that_began_the_conversation_is_forgotten() -> None:
    async with listening() as (slack, intake):
        asked = slack.mention("the password is x")
        await heard(intake)
        slack.mention("/status", thread_ts=asked.ts)
        slack.mention("/new", thread_ts=asked.ts)
        slack.mention("a fresh start", thread_ts=asked.ts)
        assert (await heard(intake, 4)).prompt == "a fresh start"


async def test_an_agents_thread_forgets_its_first_message_after_new() -> None:
    intake = ConversationIntake()
    async with fast_slack() as slack:
        slack.declare_agent()
        async with running(slack, intake):
            first, other = slack.dm("the password is x"), slack.dm("another thread")
            slack.dm("go on", thread_ts=other.ts)
            assert (
                await heard(intake, 3)
            ).quoted == ""  # Slack itself begins the threads of agents.
            slack.dm("and that one", thread_ts=first.ts)
            assert "password" in (await heard(intake, 4)).quoted
            slack.dm("/new", thread_ts=first.ts)
            slack.dm("a fresh start", thread_ts=first.ts)
            assert (await heard(intake, 6)).prompt == "a fresh start"


async def test_in_private_the_root_message_of_a_thread_is_quoted_once() -> None:
    async with listening() as (slack, intake):
        picture = slack.file("ferry.png", b"png", "image/png")
        first = slack.dm("Draw a ferry", user="UANN", files=[picture])
        slack.dm("And a train", user="UANN")
        await heard(intake, 2)
        slack.dm("make it blue", user="UANN", thread_ts=first.ts)
        turned = await heard(intake, 3)
        assert turned.prompt.split("\n") == [
            "make it blue", "", "[Earlier in this thread]", "> Ann: Draw a ferry", "> [File: ferry.png]",
        ]  # fmt: skip
        assert [file.name for file in turned.attachments] == ["ferry.png"]
        slack.dm("darker", user="UANN", thread_ts=first.ts)
        assert (await heard(intake, 4)).quoted == ""
        slack.dm("/new", user="UANN", thread_ts=first.ts)
        slack.dm("lighter", user="UANN", thread_ts=first.ts)
        assert "> Ann: Draw a ferry" in (await heard(intake, 6)).quoted
        slack.dm("a new subject", user="UANN")
        slack.dm("back to it", user="UANN", thread_ts=first.ts)
        assert "> Ann: Draw a ferry" in (await heard(intake, 8)).quoted


async def test_in_a_channel_too_a_thread_below_a_message_of_the_bot_quotes_it() -> None:
    """Nobody mentions the bot there. The bus decides whether the message is for it."""
    intake = ConversationIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.name_channel("C1", "launch")
        sent = await adapter.send(ReplyTarget(chat="C1"), "The **report** of Monday", key="k")
        slack.say("and Tuesday?", user="UANN", thread_ts=sent)
        slack.say("talk", user="UANN", thread_ts=slack.say("among others", user="UANN").ts)
        await slack.wait_for(lambda: len(intake.received) == 3)
        quoted = {one.text: one.quoted for one in intake.received}
        assert quoted == {
            "and Tuesday?": "[Earlier in this thread]\n> You: The **report** of Monday",
            "among others": "",
            "talk": "",
        }
        assert len(slack.asked("conversations.replies")) == 1


async def test_in_private_too_a_thread_that_could_not_be_read_is_read_later() -> None:
    async with listening() as (slack, intake):
        first = slack.dm("Draw a ferry", user="UANN")
        slack.fail("conversations.replies", status=503)
        slack.dm("make it blue", user="UANN", thread_ts=first.ts)
        assert (await heard(intake, 2)).quoted == ""
        slack.dm("darker", user="UANN", thread_ts=first.ts)
        assert "> Ann: Draw a ferry" in (await heard(intake, 3)).quoted


async def test_an_edit_in_a_private_thread_brings_nothing_new() -> None:
    async with listening() as (slack, intake):
        first = slack.dm("Draw a ferry", user="UANN")
        said = slack.dm("make it blu", user="UANN", thread_ts=first.ts)
        slack.dm("another subject", user="UANN")
        await heard(intake, 3)
        slack.edit(said, "make it blue")
        await slack.wait_for(lambda: intake.changed)
        (edit,) = intake.changed
        assert isinstance(edit, MessageEdit)
        assert edit.edited.prompt == "make it blue"


async def test_a_refused_message_takes_the_thread_with_it() -> None:
    async with listening() as (slack, intake):
        root = slack.say("The ferry is late.", user="UANN")
        await slack.wait_for(lambda: intake.received)
        intake.errors += [StoreError("starting")] * 2
        slack.mention("why?", thread_ts=root.ts)
        assert (await heard(intake)).quoted == "[Earlier in this thread]\n> Ann: The ferry is late."


async def test_the_first_message_of_an_agents_thread_is_slacks_own() -> None:
    async with listening() as (slack, intake):
        slack.declare_agent()
        root = slack.dm("New Assistant Thread", subtype="assistant_app_thread", user="USLACKBOT")
        slack.workspace.posted[-1].subtype = "assistant_app_thread"
        slack.workspace.posted[-1].channel = "DU1ANN"
        slack.dm("hi", thread_ts=root.ts)
        assert (await heard(intake)).prompt == "hi"


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
        # Slack reports it twice.
        await eventually(lambda: harness.bus.counters()["slack", Disposition.DUPLICATE] == 1)
        assert harness.prompts() == ["[Earlier in this thread]\n> UANN: The ferry is late."]
        assert len(slack.texts("C1")) == 1
    assert slack.violations == []


async def test_a_thread_below_a_message_of_the_bot_quotes_it(tmp_path: Path) -> None:
    """The author does not have to mention the bot, because the bus knows the message."""
    async with fast_slack() as slack, serving(slack, tmp_path) as harness:
        asked = slack.dm("hello")
        answer = await slack.wait_for(lambda: slack.replies(asked))
        await eventually(lambda: is_answered(slack, asked))
        slack.dm("shorter", thread_ts=answer[0].ts)
        await eventually(lambda: len(harness.prompts()) == 2)
        words = answer[0].words
        assert harness.prompts()[1] == f"shorter\n\n[Earlier in this thread]\n> You: {words}"
    assert slack.violations == []


async def test_new_in_a_thread_forgets_the_conversation_but_not_the_first_message(
    tmp_path: Path,
) -> None:
    async with fast_slack() as slack:
        async with serving(slack, tmp_path) as harness:
            root = slack.say("The ferry is late.", user="UANN")
            asked = slack.mention("why?", thread_ts=root.ts)
            await eventually(lambda: is_answered(slack, asked))
            renewed = slack.mention("/new", thread_ts=root.ts)
            await slack.wait_for(lambda: slack.replies(renewed))
            before = len(harness.prompts())
        async with serving(slack, tmp_path) as harness:  # Another process knows it, too.
            again = slack.mention("what now?", thread_ts=root.ts)
            await eventually(lambda: is_answered(slack, again))
            more = slack.mention("and then?", thread_ts=root.ts)
            await eventually(lambda: is_answered(slack, more))
            assert before == 1
            assert harness.prompts() == [
                "what now?\n\n[Earlier in this thread]\n> UANN: The ferry is late.",
                "and then?",
            ]
    assert slack.violations == []
