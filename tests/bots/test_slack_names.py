"""Names of people, channels and user groups. Slack's events contain only their IDs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bots.slack.names import MOST_NAMES
from bus.messages import InboundMessage
from gateway.playground.slack.server import BOT_USER, FakeSlack
from tests.bots.slack_rig import FAST, fast_slack, running
from tests.bots.test_slack_thread_history import ConversationIntake
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

ASKS = ("users.info", "conversations.info", "usergroups.list")


def populate(slack: FakeSlack) -> None:
    slack.person("U1ANN", profile={"display_name": "Ann", "real_name": "Ann Li"})
    slack.person("U2BOB", profile={"display_name": "", "real_name": "Bob Ray"})
    slack.group("S1", "support-team")
    slack.name_channel("C1", "launch")
    slack.name_channel("C5", "general", joined=False)
    slack.name_channel("G9", "board", kind="group", joined=False)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[FakeSlack, ConversationIntake]]:
    intake = ConversationIntake()
    async with fast_slack() as slack:
        populate(slack)
        async with running(slack, intake):
            yield slack, intake
    assert slack.violations == []


async def heard(intake: ConversationIntake, count: int = 1) -> InboundMessage:
    await eventually(lambda: len(intake.addressed) == count)
    return intake.addressed[-1]


def asked(slack: FakeSlack) -> dict[str, int]:
    return {method: len(slack.asked(method)) for method in ASKS}


MENTIONS = f"<@{BOT_USER}> tell <@U2BOB> and <!subteam^S1> in <#C5>, not <#G9>, <!here>"
TOLD = "tell @Bob Ray and @support-team in #general, not #G9, @here"


async def test_mentions_are_replaced_by_names() -> None:
    async with listening() as (slack, intake):
        slack.say(MENTIONS, marked=True)
        message = await heard(intake)
        assert message.text == TOLD
        assert message.chat_title == "launch"
        assert (message.sender.user_id, message.sender.name) == ("U1ANN", "Ann")
        assert message.order == int(message.message_id.replace(".", ""))
        before = asked(slack)
        slack.say(MENTIONS, marked=True)
        assert (await heard(intake, 2)).text == TOLD
        assert asked(slack) == before  # Responses without a name are cached, too.


async def test_names_stand_in_history_forwards_and_blocks_too() -> None:
    async with listening() as (slack, intake):
        root = slack.bot_says(
            "",
            blocks=[{"type": "section", "text": {"type": "mrkdwn", "text": "Page <!subteam^S1>"}}],
        )
        slack.say("I ask <@U1ANN> in <#C5>", user="U2BOB", thread_ts=root.ts, marked=True)
        shared = {"is_share": True, "author_id": "U2BOB", "author_name": "Bob", "text": "<@U1ANN>?"}
        slack.mention("why?", thread_ts=root.ts, attachments=[shared])
        message = await heard(intake)
        assert message.text == "why?"
        assert message.quoted.split("\n") == [
            "[Forwarded]",
            "> Bob: @Ann?",
            "",
            "[Earlier in this thread]",
            "> U2OTHER: Page @support-team",
            "> Bob Ray: I ask @Ann in #general",
        ]


async def test_two_people_with_the_same_name_are_distinguished() -> None:
    async with listening() as (slack, intake):
        slack.person("U3ANN", profile={"display_name": "ann"})
        slack.person("U4YOU", profile={"display_name": "You"})
        root = slack.say("hi <@U2BOB>", user="U3ANN", marked=True)
        slack.say("ok", user="U4YOU", thread_ts=root.ts)
        slack.mention("who?", thread_ts=root.ts)
        assert (await heard(intake)).quoted.split("\n")[1:] == [
            "> ann (U3ANN): hi @Bob Ray",
            "> You (U4YOU): ok",
        ]


async def test_the_bot_itself_needs_no_lookup() -> None:
    async with listening() as (slack, intake):
        shared = {"is_share": True, "author_name": "Bob", "text": f"ask <@{BOT_USER}>"}
        slack.dm("this", attachments=[shared])
        message = await heard(intake)
        assert message.quoted == "[Forwarded]\n> Bob: ask @parley"
        assert message.chat_title == ""
        assert [call.arguments["user"] for call in slack.asked("users.info")] == ["U1ANN"]
        assert slack.asked("conversations.info") == []


async def test_a_group_of_people_has_no_title() -> None:
    async with listening() as (slack, intake):
        slack.server.scopes.add("mpim:read")
        slack.mention("hello", channel="M1")
        assert (await heard(intake)).chat_title == ""


async def test_without_the_permissions_ids_are_shown_and_nothing_is_asked() -> None:
    intake = ConversationIntake()
    async with fast_slack() as slack:
        populate(slack)
        slack.server.scopes -= {"channels:read", "groups:read", "usergroups:read", "users:read"}
        async with running(slack, intake) as adapter:
            slack.say(MENTIONS, marked=True)
            message = await heard(intake)
            assert message.text == "tell @U2BOB and @S1 in #C5, not #G9, @here"
            assert (message.chat_title, message.sender.name) == ("", "")
            assert (asked(slack)["conversations.info"], asked(slack)["usergroups.list"]) == (0, 0)
            assert "usergroups:read" in adapter.health().detail
    assert slack.violations == []


@pytest.mark.parametrize(
    "trouble",
    [{"status": 429, "headers": {"Retry-After": "60"}}, {"status": 500}, {"body": "?"}],
    ids=str,
)
async def test_names_that_slack_does_not_tell_are_left_out(trouble: dict[str, object]) -> None:
    async with listening() as (slack, intake):
        slack.mention("the first")
        await heard(intake)
        for method in ASKS:
            slack.fail(method, times=9, **trouble)  # type: ignore[arg-type]
        slack.say(MENTIONS, marked=True)
        message = await heard(intake, 2)
        assert message.text == "tell @U2BOB and @S1 in #C5, not #G9, @here"
        assert (message.chat_title, message.sender.name) == ("launch", "Ann")
        before = asked(slack)
        slack.say(MENTIONS, marked=True)
        await heard(intake, 3)
        assert asked(slack) == before  # Names are not looked up again for each message.


async def test_names_are_not_waited_for_beyond_their_time() -> None:
    intake = ConversationIntake()
    hurried = replace(FAST, names_s=0.05)
    async with fast_slack() as slack:
        populate(slack)
        async with running(slack, intake, timeouts=hurried):
            for method in ASKS[1:]:
                slack.fail(method, delay_s=30.0, times=9)
            slack.say(f"<@{BOT_USER}> tell <!subteam^S1>", marked=True)
            message = await heard(intake)
            assert (message.text, message.chat_title) == ("tell @S1", "")


async def test_names_that_are_known_need_no_time() -> None:
    intake = ConversationIntake()
    hurried = replace(FAST, lookups_s=0.3)
    async with fast_slack() as slack:
        populate(slack)
        async with running(slack, intake, timeouts=hurried):
            slack.say(MENTIONS, marked=True)
            await heard(intake)
            root = slack.say("The ferry is late.", user="U2BOB")
            slack.fail(
                "conversations.replies", delay_s=30.0, times=9
            )  # The lookup takes all the available time.
            slack.say(MENTIONS, thread_ts=root.ts, marked=True)
            message = await heard(intake, 2)
            assert (message.text, message.chat_title) == (TOLD, "launch")


async def test_the_number_of_names_to_look_up_is_limited() -> None:
    async with listening() as (slack, intake):
        everybody = " ".join(f"<@U{number}X>" for number in range(MOST_NAMES + 20))
        slack.say(f"<@{BOT_USER}> tell {everybody}", marked=True)
        assert f"@U{MOST_NAMES + 19}X" in (await heard(intake)).text
        assert len(slack.asked("users.info")) == MOST_NAMES + 1  # and the author's name


async def test_commands_presses_and_edits_carry_the_same_name() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack:
        populate(slack)
        async with running(slack, intake):
            slack.slash("status")
            said = slack.dm("hello")
            await slack.wait_for(lambda: len(intake.received) == 2)
            slack.act(said, "parley.0", "stop:1:0")
            slack.edit(said, "hello <@U2BOB>", marked=True)
            await slack.wait_for(lambda: intake.pressed and intake.changed)
    assert {one.sender.name for one in intake.received} == {"Ann"}
    assert intake.pressed[0].sender.name == "Ann"
    (edit,) = intake.changed
    assert (edit.edited.sender.name, edit.edited.text) == ("Ann", "hello @Bob Ray")  # type: ignore[union-attr]


async def test_another_bot_has_the_name_that_it_shows() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.send_event({
            "type": "message", "channel": "C1", "user": "U2OTHER", "bot_id": "B2OTHER", "ts": "5.000001",
            "text": f"<@{BOT_USER}> hi", "bot_profile": {"name": "Jenkins"}, "channel_type": "channel",
        })  # fmt: skip
        await slack.wait_for(lambda: intake.received)
    assert (intake.received[0].sender.name, intake.received[0].sender.is_bot) == ("Jenkins", True)


async def test_in_threads_of_other_people_only_authors_are_looked_up() -> None:
    async with listening() as (slack, intake):
        root = slack.say("talk")
        slack.say("tell <@U2BOB> in <#C5>", thread_ts=root.ts, marked=True)
        slack.mention("joined", thread_ts=root.ts)
        await heard(intake)
        slack.say("tell <!subteam^S1>", thread_ts=root.ts, marked=True)
        await slack.wait_for(lambda: "tell @support-team" in intake.texts)
        assert "tell @U2BOB in #C5" in intake.texts
