"""The bot stays out of messages between other people in its threads."""

from pathlib import Path

import pytest

from agent.speakers import chat_section
from bus.config import ChannelPolicy, ChatPolicy
from bus.messages import MessageId, ReplyTarget
from bus.platform import Disposition
from bus.runs.replies import SILENCE
from tests.bus.harness import OPEN, BusHarness, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.platform import CardPlatform


class RemovableCards(CardPlatform):
    """A platform on which messages grow in place and can be deleted, as on Feishu."""

    async def delete_message(self, place: ReplyTarget, message: MessageId) -> None:
        self.shown = [one for one in self.shown if one.id != message]


GROUP: dict[str, object] = {"is_private": False, "chat": "g", "topic": "t"}
FOLLOWUP: dict[str, object] = {**GROUP, "is_addressed": False, "replies_to": ("older",)}


async def mention(harness: BusHarness) -> None:
    """Start a conversation in the thread with a mention, and wait for the answer."""
    await harness.send("@bot hello", **GROUP)
    await harness.expect_replies("Hello you")


async def test_messages_that_mention_others_are_not_for_the_bot(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await mention(harness)
        for policy in ("followup", "root"):
            where = FOLLOWUP if policy == "followup" else {**FOLLOWUP, "topic": "other"}
            said = await harness.send("@bob see above", mentions_others=True, **where)
            assert said is Disposition.NOT_ADDRESSED
        # An additional mention of the bot counts.
        said = await harness.send("@bot ask @bob", mentions_others=False, **GROUP)
        assert said is Disposition.ACCEPTED
        await harness.expect_replies("Hello you", "Hello you")


@pytest.mark.parametrize(
    ("channel", "chat", "disposition"),
    [
        ("smart", None, Disposition.ACCEPTED),
        ("all", None, Disposition.ACCEPTED),
        ("mention", None, Disposition.NOT_ADDRESSED),
        ("mention", "all", Disposition.ACCEPTED),
        ("all", "mention", Disposition.NOT_ADDRESSED),
    ],
)
async def test_follow_ups_are_set_per_channel_and_chat(
    tmp_path: Path, channel: str, chat: str | None, disposition: Disposition
) -> None:
    chats = {"g": ChatPolicy.model_validate({"thread_followups": chat})}
    policy = OPEN.model_copy(update={"thread_followups": channel, "chats": chats})
    async with running_bus(tmp_path, policy=policy) as harness:
        await mention(harness)
        assert await harness.send("and then?", **FOLLOWUP) is disposition
        others = await harness.send("@bob and then?", mentions_others=True, **FOLLOWUP)
        assert others is Disposition.NOT_ADDRESSED


@pytest.mark.parametrize("words", [("NO_REPLY",), ("NO", "_REPLY", "."), ("`NO_REPLY`",), (" ",)])
async def test_an_agent_that_says_nothing_in_a_group_shows_nothing(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    async with running_bus(tmp_path, policy=OPEN.model_copy(update={"admin_users": ["u"]})) as h:
        await mention(h)
        h.server.scripts.append(Script(words=words))
        assert await h.send("Bob, lunch?", **FOLLOWUP) is Disposition.ACCEPTED
        await h.wait_until_finished()
        await h.send("/why", **GROUP)
        await eventually(lambda: len(h.platform.texts) == 2)
        assert "`declined`" in h.platform.texts[1]


async def test_alone_with_the_bot_a_person_is_told_that_there_is_no_answer(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(words=("NO_REPLY",)))
        await harness.send("hello?")
        await harness.expect_replies("(No response from agent)")


async def test_the_token_after_words_is_not_shown(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(words=("Done.", "\n\n", "NO_REPLY")))
        await harness.send("@bot do it", **GROUP)
        await harness.expect_replies("Done.")


async def test_nothing_is_shown_before_the_first_word_without_a_mention(tmp_path: Path) -> None:
    platform = RemovableCards("fake")
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("@bot hello", **GROUP)
        await eventually(lambda: platform.indicators[-1:] == ["done"])
        shown, worked = len(platform.shown), list(platform.indicators)
        gate = harness.hold_next_run("Me", "!")
        await harness.send("who can do it?", **FOLLOWUP)
        await harness.wait_for_runs(2)
        assert (len(platform.shown), platform.indicators) == (shown, worked)
        gate.set()
        await harness.wait_until_finished()
        await eventually(lambda: [m.text for m in platform.shown][shown:] == ["Me!"])


async def test_a_card_that_was_shown_is_removed_if_the_agent_then_says_nothing(
    tmp_path: Path,
) -> None:
    platform = RemovableCards("fake")
    async with running_bus(tmp_path, platform=platform) as harness:
        gate = harness.hold_next_run("NO_REPLY")
        await harness.send("@bot thanks!", **GROUP)
        await eventually(lambda: [m.text for m in platform.shown] == ["…"])
        gate.set()
        await harness.wait_until_finished()
        await eventually(lambda: platform.shown == [])


async def test_the_agent_is_told_which_messages_do_not_mention_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await mention(harness)
        await harness.send("and then?", **FOLLOWUP)
        await harness.expect_replies("Hello you", "Hello you")
        said = [
            run.body["input"]["messages"][0]["additional_kwargs"] for run in harness.server.runs
        ]
    assert [one.get("is_addressed") for one in said] == [None, False]


def test_the_prompt_names_the_answer_that_is_not_shown() -> None:
    section = chat_section({"chat": {"type": "group"}}, None)
    assert f"reply with {SILENCE} and nothing else" in section


def test_smart_is_the_default() -> None:
    assert ChannelPolicy().followups_in("g") == "smart"
