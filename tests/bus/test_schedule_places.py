"""Schedules in other chats: only where the platform confirms that the person is a member and may use the bot."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from bus.config import ChannelPolicy
from bus.errors import DeliveryError
from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.schedules import places
from bus.schedules.places import PlaceRefused
from bus.schedules.schedules import ScheduleRequest
from tests.bus.harness import OPEN, BusHarness, inbound_message, running_bus
from tests.fakes.platform import FakePlatform

UNKNOWN = "the platform shows no chat with this name"


class MemberPlatform(FakePlatform):
    """A platform that knows the members of groups. `asked`: the groups that it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, set[str]] = {}
        self.asked: list[str] = []

    async def is_member(self, target: ReplyTarget, person: str) -> bool | None:
        self.asked.append(target.chat)
        self._raise(self._called("is_member"))
        if target.chat == "hangs":
            await anyio.sleep_forever()
        members = self.members.get(target.chat)
        return None if members is None else person in members


async def write_in_groups(harness: BusHarness, titles: dict[str, str]) -> None:
    """Let another person write in groups. `titles` maps IDs to titles."""
    for chat, title in titles.items():
        sent = {"chat": chat, "user": "bob", "chat_title": title, "is_private": False}
        await harness.send("hello", **sent, topic="t1")
    await harness.wait_until_finished()


def asked_by(user: str = "u", **changes: Any) -> InboundMessage:  # noqa: ANN401 - any field
    return inbound_message("post it there", "ask", user=user, chat=f"d{user}", **changes)


async def refusal(harness: BusHarness, asked: InboundMessage, name: str) -> str:
    with pytest.raises(PlaceRefused) as refused:
        await harness.bus.places.find(asked, name)
    return str(refused.value)


async def test_a_member_finds_a_group_by_its_name_or_id(tmp_path: Path) -> None:
    platform = MemberPlatform()
    platform.members = {"g1": {"u"}, "g2": {"u"}}
    async with running_bus(tmp_path, platform=platform) as harness:
        await write_in_groups(harness, {"g1": "sales", "g2": "#Sales Asia"})
        for name in ("#sales", "Sales", " G1 "):
            place = await harness.bus.places.find(asked_by(), name)
            assert (place.key.chat, place.key.topic, place.chat_title) == ("g1", "", "sales")
            assert (place.reply_target.chat, place.reply_target.reply_to) == ("g1", "")
            assert (place.sender.user_id, place.is_private) == ("u", False)
        assert (await harness.bus.places.find(asked_by(), "#sales asia")).key.chat == "g2"
        there = inbound_message("x", "y", chat="g1", topic="t1", is_private=False)
        assert await harness.bus.places.find(there, "sales") is there


async def test_nobody_learns_of_a_chat_of_which_they_are_no_member(tmp_path: Path) -> None:
    platform = MemberPlatform()
    platform.members = {"g1": {"bob"}, "g2": {"bob", "u"}, "g4": {"bob"}}
    async with running_bus(tmp_path, platform=platform) as harness:
        await write_in_groups(
            harness, {"g1": "Layoffs", "g2": "Sales", "g3": "Hidden", "g4": "Sales"}
        )
        unknown = await refusal(harness, asked_by(), "nothing of this kind")
        assert unknown.startswith(UNKNOWN)
        assert await refusal(harness, asked_by(), "Layoffs") == unknown
        assert await refusal(harness, asked_by(), "g1") == unknown
        assert await refusal(harness, asked_by(), "layoff") == unknown
        assert await refusal(harness, asked_by(), "Hidden") == unknown
        # If two chats share a name, it means the one in which the person is a member.
        assert (await harness.bus.places.find(asked_by(), "Sales")).key.chat == "g2"
        platform.fail("is_member", DeliveryError("not now"), times=2)
        assert await refusal(harness, asked_by(), "Sales") == unknown


async def test_chats_with_the_same_or_a_longer_name_are_asked_about(tmp_path: Path) -> None:
    platform = MemberPlatform()
    platform.members = {"g1": {"u"}, "g2": {"u"}, "g3": {"bob"}}
    async with running_bus(tmp_path, platform=platform) as harness:
        await write_in_groups(harness, {"g1": "Sales", "g2": "Sales", "g3": "Sales"})
        which = await refusal(harness, asked_by(), "sales")
        assert which.startswith("ask the person which chat they mean: ")
        assert "(ID g1)" in which
        assert "(ID g2)" in which
        assert "g3" not in which
        assert "'Sales' (ID g1)" in await refusal(harness, asked_by(), "sale")


async def test_the_platform_is_asked_ten_times_and_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = MemberPlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        await write_in_groups(harness, {f"g{number}": "Team" for number in range(12)})
        assert (await refusal(harness, asked_by(), "team")).startswith(UNKNOWN)
        assert len(platform.asked) == places.MAX_ASKED
        harness.clock.ahead += 100
        await write_in_groups(harness, {"hangs": "Slow"})
        monkeypatch.setattr(places, "MEMBERSHIP_S", 0.2)
        assert (await refusal(harness, asked_by(), "slow")).startswith(UNKNOWN)


async def test_rights_in_the_other_chat_count(tmp_path: Path) -> None:
    platform = MemberPlatform()
    platform.members = {"g1": {"u"}}
    policy = ChannelPolicy(enabled=True, dm_policy="open", group_policy="open")
    async with running_bus(tmp_path, platform=platform, policy=policy) as harness:
        await write_in_groups(harness, {"g1": "Sales"})
        assert (await harness.bus.places.find(asked_by(), "Sales")).key.chat == "g1"
        guest = asked_by(sender=Sender(user_id="u", kind="guest"))
        assert await refusal(harness, guest, "Sales") == "this person may not use you in that chat"
    closed = policy.model_copy(update={"group_policy": "disabled"})
    async with running_bus(tmp_path, platform=platform, policy=closed) as harness:
        assert "may not use you" in await refusal(harness, asked_by(), "Sales")


async def test_me_is_the_private_chat_if_there_is_one(tmp_path: Path) -> None:
    async with running_bus(tmp_path, platform=MemberPlatform(), policy=OPEN) as harness:
        group = inbound_message("remind me privately", "x", chat="g1", is_private=False)
        assert "has not written to you in private" in await refusal(harness, group, "me")
        await harness.send("hi", chat="du")
        harness.clock.ahead += 100
        place = await harness.bus.places.find(group, "Me")
        assert (place.key.chat, place.reply_target.chat, place.is_private) == ("du", "du", True)
        private = asked_by()
        assert await harness.bus.places.find(private, "me") is private


async def test_the_chat_is_told_in_its_language_and_the_owner_lists_it(tmp_path: Path) -> None:
    platform = MemberPlatform()
    platform.members = {"g1": {"u"}}
    async with running_bus(tmp_path, platform=platform) as harness:
        sent = {"chat": "g1", "user": "bob", "chat_title": "销售", "is_private": False}
        await harness.send("你好，今天怎么样？", **sent)
        await harness.wait_until_finished()
        asked = asked_by(language="en")
        place = await harness.bus.places.find(asked, "销售")
        request = ScheduleRequest(prompt="the news", kind="every", expression="1h", timezone="UTC")
        schedule = await harness.bus.places.create(place, request)
        await platform.until(2)
        [told] = [text for text in platform.texts if "定时任务" in text]
        assert told.startswith("🗓 u 为本聊天设置了定时任务“the news”，下次 ")
        known = await harness.bus.schedules.list_known(asked)
        assert [one.id for one in known] == [schedule.id]
        assert await harness.bus.schedules.list_known(asked_by("bob")) == []
        in_group = inbound_message("x", "y", chat="g2", is_private=False)
        assert await harness.bus.schedules.list_known(in_group) == []
