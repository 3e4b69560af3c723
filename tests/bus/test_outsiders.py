"""People and groups without access: the notices they get, how a group is approved, and that nothing runs for them."""

from dataclasses import replace
from pathlib import Path

import pytest

from bus.config import ChannelPolicy
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from bus.messages import ReplyTarget, Sender, SenderKind
from bus.platform import Disposition
from store.conversations import ConversationKey
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.platform import FakePlatform

LISTED = ChannelPolicy(dm_policy="allowlist", allowed_users=["u"])
GROUPS = ChannelPolicy(dm_policy="pairing", group_policy="pairing", admin_users=["boss"])
GROUP = ConversationKey(channel="fake", workspace="w", chat="g")


async def say_as(
    harness: BusHarness, kind: SenderKind, text: str, **changes: object
) -> Disposition:
    harness.sent += 1
    message = inbound_message(text, f"e{harness.sent}", **changes)
    sender = Sender(user_id=message.sender.user_id, name="Eve", kind=kind)
    return await harness.bus.intake.receive(replace(message, sender=sender))


async def mention(harness: BusHarness, text: str, **changes: object) -> Disposition:
    return await harness.send(text, **({"is_private": False, "chat": "g"} | changes))


async def test_people_who_are_not_listed_are_notified_once_a_day_per_chat(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=LISTED) as harness:
        for text in ("hello", "hello?", "你好"):
            assert await harness.send(text, user="v") is Disposition.NOT_ALLOWED
        assert await harness.send("你好", user="x", chat="d") is Disposition.NOT_ALLOWED
        await harness.expect_replies(ENGLISH.not_allowed, CHINESE.not_allowed)
        assert harness.server.runs == []
    # A restart sends no second notice, but the next day does.
    async with running_bus(tmp_path, policy=LISTED) as harness:
        assert await harness.send("hello", user="v", event="later") is Disposition.NOT_ALLOWED
        await harness.send("hi")
        await harness.expect_replies("Hello you")
        harness.clock.ahead += 86_400
        assert await harness.send("hello", user="v", event="tomorrow") is Disposition.NOT_ALLOWED
        await harness.expect_replies("Hello you", ENGLISH.not_allowed)


async def test_in_groups_people_who_are_not_listed_are_not_notified(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=LISTED) as harness:
        assert await mention(harness, "hello", user="v") is Disposition.NOT_ALLOWED
        await mention(harness, "hi")
        await harness.expect_replies("Hello you")


async def test_a_refusal_in_a_group_is_shown_only_to_its_sender(tmp_path: Path) -> None:
    """The answer to a Slack command is shown to its sender alone."""
    own = ReplyTarget(chat="g", response_url="https://slack.example/answer")
    async with running_bus(tmp_path, policy=LISTED) as harness:
        for text in ("/help", "/status"):
            told = await mention(harness, text, user="v", reply_target=own)
            assert told is Disposition.NOT_ALLOWED
        await harness.expect_replies(ENGLISH.not_allowed)


async def test_in_chats_without_access_the_bot_says_so_once_a_day_in_private(
    tmp_path: Path,
) -> None:
    policy = ChannelPolicy(dm_policy="disabled", group_policy="disabled")
    async with running_bus(tmp_path, policy=policy) as harness:
        for text in ("hello", "/status"):
            assert await mention(harness, text) is Disposition.DISABLED
            assert await harness.send(text) is Disposition.DISABLED
        await harness.expect_replies(ENGLISH.not_answered_here)
        assert harness.server.runs == []


async def test_people_who_did_not_address_the_bot_are_not_notified(tmp_path: Path) -> None:
    policy = ChannelPolicy(group_policy="open", external_policy="deny")
    async with running_bus(tmp_path, policy=policy) as harness:
        overheard = {"is_private": False, "is_addressed": False}
        assert await say_as(harness, "external", "hi", **overheard) is Disposition.EXTERNAL
        await harness.send("hi", is_private=False)
        await harness.expect_replies("Hello you")


@pytest.mark.parametrize("kind", ["guest", "external"])
async def test_an_outsider_is_notified_once_and_nothing_runs(
    tmp_path: Path, kind: SenderKind
) -> None:
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="open")) as harness:
        for text in ("hi", "/status", "hi again"):
            assert await say_as(harness, kind, text) is Disposition.EXTERNAL
        assert await say_as(harness, kind, "hi", chat="g", is_private=False) is Disposition.EXTERNAL
        await harness.expect_replies(ENGLISH.external_denied, ENGLISH.external_denied)
        assert harness.server.runs == []
        assert harness.bus.counters()[("fake", Disposition.EXTERNAL)] == 4


async def test_an_outsider_is_answered_where_the_policy_is_open(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="open", external_policy="open")
    async with running_bus(tmp_path, policy=policy) as harness:
        assert await say_as(harness, "external", "hi") is Disposition.ACCEPTED
        await harness.expect_replies("Hello you")


async def test_why_names_outsiders_and_groups_that_wait(tmp_path: Path) -> None:
    policy = GROUPS.model_copy(update={"allowed_users": []})
    async with running_bus(tmp_path, policy=policy) as harness:
        await say_as(harness, "external", "hi", chat="g", is_private=False)
        await mention(harness, "hi")
        code = (await harness.bus.pairings.list_all())[0].code
        await harness.bus.approve(code)
        await mention(harness, "/why", user="boss")
        await eventually(lambda: any("Not accepted" in text for text in harness.platform.texts))
        why = next(text for text in harness.platform.texts if "Not accepted" in text)
        assert "`external` (the sender is from outside the organization)" in why
        assert "`group_pairing` (the group is not approved yet)" in why


async def test_a_group_answers_after_an_administrator_approved_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=GROUPS) as harness:
        assert await mention(harness, "hi") is Disposition.GROUP_PAIRING
        assert await mention(harness, "hi?", user="v") is Disposition.GROUP_PAIRING
        [pairing] = await harness.bus.pairings.list_all()
        assert (pairing.user_id, pairing.chat) == ("group:g", "g")
        await harness.expect_replies(ENGLISH.group_pairing_code.format(code=pairing.code))
        assert harness.server.runs == []
        await harness.bus.approve(pairing.code)
        assert await mention(harness, "hi") is Disposition.ACCEPTED
        assert await mention(harness, "hi", chat="other") is Disposition.GROUP_PAIRING
        assert await mention(harness, "overheard", is_addressed=False) is Disposition.NOT_ADDRESSED
        # Approving the group does not approve its members.
        assert await harness.send("hi", user="v", chat="v") is Disposition.PAIRING
        await harness.bus.pairings.revoke("fake", "group:g")
        assert await mention(harness, "hi") is Disposition.GROUP_PAIRING


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        (Sender(user_id="boss"), Disposition.ACCEPTED),
        (Sender(user_id="paired"), Disposition.ACCEPTED),
        (Sender(user_id="stranger"), Disposition.GROUP_PAIRING),
        (Sender(user_id="robot", is_bot=True), Disposition.GROUP_PAIRING),
    ],
)
async def test_a_group_is_approved_if_the_person_who_adds_the_bot_may_approve(
    tmp_path: Path, who: Sender, expected: Disposition
) -> None:
    async with running_bus(tmp_path, policy=GROUPS) as harness:
        await harness.send("hi", user="paired", chat="p")
        [pairing] = await harness.bus.pairings.list_all()
        await harness.bus.approve(pairing.code)
        await harness.bus.intake.handle_bot_added(GROUP, who)
        await harness.bus.intake.handle_bot_added(GROUP, who)
        assert await mention(harness, "hi", user="anybody") is expected
        approved = [one for one in await harness.bus.pairings.list_all() if one.approved_at]
        assert len(approved) == (2 if expected is Disposition.ACCEPTED else 1)


async def test_an_approved_group_stays_approved_when_it_becomes_a_supergroup(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, policy=GROUPS) as harness:
        await harness.bus.intake.handle_bot_added(GROUP, Sender(user_id="boss"))
        await harness.bus.intake.migrate_chat("fake", "w", "g", "g2")
        assert await mention(harness, "hi", chat="g2") is Disposition.ACCEPTED
        assert await mention(harness, "hi", chat="g") is Disposition.GROUP_PAIRING


async def test_two_bots_in_one_room_do_not_answer_each_other(tmp_path: Path) -> None:
    policy = ChannelPolicy(dm_policy="open", group_policy="open", external_policy="open")
    async with running_bus(
        tmp_path, policy=policy, others={"second": FakePlatform("second")}
    ) as harness:
        await mention(harness, "hi")
        await harness.expect_replies("Hello you")
        for channel, text in (("second", "Hello you"), ("fake", "Hello you too")):
            answer = inbound_message(
                text, f"by {channel}", channel=channel, chat="g", is_private=False
            )
            by_bot = replace(answer, sender=Sender(user_id="bot", is_bot=True))
            assert await harness.bus.intake.receive(by_bot) is Disposition.FROM_BOT
        assert len(harness.server.runs) == 1


BOT = Sender(user_id="bot", is_bot=True)


async def test_mentions_by_bots_are_answered_as_often_in_a_row_as_configured(
    tmp_path: Path,
) -> None:
    policy = ChannelPolicy(dm_policy="open", external_policy="open", max_bot_messages=2)
    async with running_bus(tmp_path, policy=policy) as harness:

        async def bot_says(text: str, event: str, **changes: object) -> Disposition:
            fields: dict[str, object] = {"chat": "g", "is_private": False, **changes}
            return await harness.bus.intake.receive(
                replace(inbound_message(text, event, **fields), sender=BOT)
            )

        assert await bot_says("psst", "b0", is_addressed=False) is Disposition.FROM_BOT
        assert await bot_says("hi", "b1") is Disposition.ACCEPTED
        assert await bot_says("hi", "b1") is Disposition.DUPLICATE
        assert await bot_says("and?", "b2") is Disposition.ACCEPTED
        assert await bot_says("and?", "b3") is Disposition.FROM_BOT
        assert await bot_says("hi", "b4", chat="other") is Disposition.ACCEPTED
        assert await bot_says("/status", "b5", chat="other") is Disposition.FROM_BOT
        assert await bot_says("hi", "b6", chat="dm", is_private=True) is Disposition.FROM_BOT
        # Every message of a person in the chat counts, even if it is not for the bot.
        await mention(harness, "well", is_addressed=False)
        assert await bot_says("hi", "b7") is Disposition.ACCEPTED


async def test_a_mention_by_a_bot_that_comes_as_two_events_counts_once(tmp_path: Path) -> None:
    """Slack reports a mention as a message and as a mention, and resends unacknowledged events."""
    policy = ChannelPolicy(external_policy="open", max_bot_messages=2)
    async with running_bus(tmp_path, policy=policy) as harness:
        dispositions = []
        for message in ("m1", "m2", "m3"):
            for event in ("message", "mention"):
                mention_event = inbound_message(
                    "hi", f"{event} {message}", message_id=message, chat="g", is_private=False
                )
                by_bot = replace(mention_event, sender=BOT)
                dispositions.append(await harness.bus.intake.receive(by_bot))
        accepted, duplicate, refused = (
            Disposition.ACCEPTED,
            Disposition.DUPLICATE,
            Disposition.FROM_BOT,
        )
        assert dispositions == [accepted, duplicate, accepted, duplicate, refused, refused]
