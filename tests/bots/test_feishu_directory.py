"""Names of people and titles of groups, which events do not contain. Real adapter, fake platform."""

import pytest

from bots.feishu.directory import FRESH_S, FeishuDirectory
from bus.messages import InboundMessage
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import adapter_for, running
from tests.fakes.clock import ManualClock
from tests.fakes.intake import RecordingIntake

GROUP = "oc_team"


async def asked(
    feishu: FakeFeishu, intake: RecordingIntake, user: str = "ou_alice", *, private: bool = False
) -> InboundMessage:
    known = len(intake.received)
    await (feishu.dm("hi", user=user) if private else feishu.mention("hi", chat=GROUP, user=user))
    await feishu.wait_for(lambda: len(intake.received) > known)
    return intake.received[-1]


@pytest.mark.parametrize("private", [False, True])
async def test_the_sender_has_a_name_with_the_scopes_that_every_bot_has(private: bool) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.state.people["ou_alice"] = "Alice"
        feishu.state.titles[GROUP] = "The Team"
        inbound = await asked(feishu, intake, private=private)
        assert (inbound.sender.name, inbound.chat_title) == ("Alice", "")
        calls = len(feishu.state.calls)
        assert (await asked(feishu, intake, private=private)).sender.name == "Alice"
        assert len(feishu.state.calls) == calls
        assert feishu.violations == []


async def test_a_group_has_its_title_and_a_message_its_order() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.allow_names()
        feishu.state.titles[GROUP] = "The\nTeam"
        inbound = await asked(feishu, intake)
        assert inbound.chat_title == "The Team"
        assert inbound.order == round((inbound.sent_at or 0) * 1000) > 0
        assert len(feishu.calls("chat.get")) == 1
        assert (await asked(feishu, intake)).chat_title == "The Team"
        assert len(feishu.calls("chat.get")) == 1
        assert feishu.violations == []


async def test_unmentioned_people_are_looked_up_in_the_member_list_page_by_page() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.rest.scopes.add("im:chat.members:read")
        members = [f"ou_member{number}" for number in range(250)]
        feishu.state.members[GROUP] = members
        feishu.state.people = {member: member.removeprefix("ou_") for member in members}
        shared = {"user_id": "ou_member120"}
        await feishu.say("hi", chat=GROUP, user="ou_member1")
        mentions = [{"key": "@_user_1", "id": {"open_id": "ou_0bot"}, "name": "Parley"}]
        await feishu.message("share_user", shared, chat=GROUP, user="ou_member1", mentions=mentions)
        await feishu.wait_for(lambda: len(intake.received) == 2)
        assert intake.texts[1] == "[Contact: member120, ou_member120]"
        assert len(feishu.calls("chat.members")) == 2
        shared = {"user_id": "ou_member220"}
        await feishu.message("share_user", shared, chat=GROUP, user="ou_member1", mentions=mentions)
        await feishu.wait_for(lambda: len(intake.received) == 3)
        assert intake.texts[2] == "[Contact: member220, ou_member220]"
        assert len(feishu.calls("chat.members")) == 3
        assert feishu.violations == []


async def test_shared_people_and_groups_are_found_in_private() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.allow_names()
        feishu.state.people["ou_eve"] = "Eve"
        feishu.state.titles["oc_other"] = "Others"
        chat = "oc_dm_ou_alice"
        await feishu.message("share_user", {"user_id": "ou_eve"}, chat=chat, private=True)
        await feishu.message("share_chat", {"chat_id": "oc_other"}, chat=chat, private=True)
        await feishu.wait_for(lambda: len(intake.received) == 2)
        assert intake.texts == ["[Contact: Eve, ou_eve]", "[Group: Others, oc_other]"]
        assert feishu.violations == []


CARD = {"schema": "2.0", "body": {"elements": [{"tag": "person", "user_id": "ou_eve"}]}}


@pytest.mark.parametrize("card", [CARD, {"type": "template", "data": {}, "made_from": CARD}])
async def test_people_on_a_card_have_names(card: dict[str, object]) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.allow_names()
        feishu.state.people["ou_eve"] = "Eve"
        await feishu.message("interactive", card, chat="oc_dm_ou_alice", private=True)
        await feishu.wait_for(lambda: intake.received)
        assert intake.received[0].quoted == "[Forwarded]\n> @Eve"
        assert feishu.violations == []


async def test_names_are_learned_from_mentions() -> None:
    intake = RecordingIntake()
    bob = [{"key": "@_user_1", "id": {"open_id": "ou_bob"}, "name": "Bob"}]
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.rest.scopes -= {"im:message:readonly"}
        await feishu.say("@_user_1 when?", chat=GROUP, mentions=bob)
        await feishu.wait_for(lambda: intake.received)
        assert (await asked(feishu, intake, "ou_bob")).sender.name == "Bob"


async def test_without_scopes_nothing_fails_and_nothing_is_asked_again() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.rest.scopes -= {"im:message:readonly"}
        inbound = await asked(feishu, intake)
        assert (inbound.text, inbound.sender.name, inbound.chat_title) == ("hi", "", "")
        calls = len(feishu.state.calls)
        await asked(feishu, intake)
        assert len(feishu.state.calls) == calls


async def test_lookups_are_repeated_after_temporary_failures() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        feishu.allow_names()
        feishu.state.titles[GROUP] = "The Team"
        feishu.state.people["ou_alice"] = "Alice"
        for op in ("chat.get", "message.get", "chat.members", "users.batch"):
            feishu.fail(op, status=503, text="busy")
        inbound = await asked(feishu, intake)
        assert (inbound.sender.name, inbound.chat_title) == ("", "")
        inbound = await asked(feishu, intake)
        assert (inbound.sender.name, inbound.chat_title) == ("Alice", "The Team")


async def test_names_are_looked_up_again_after_an_hour() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        clock = ManualClock()
        directory = FeishuDirectory(adapter._api, "cli_1", clock)
        feishu.allow_names()
        feishu.state.people["ou_bob"] = "Bob"
        await directory.look_up(["ou_bob", "ou_nobody", "cli_other", ""])
        assert directory.names["ou_bob"] == "Bob"
        feishu.state.people["ou_bob"] = "Robert"
        await directory.look_up(["ou_bob", "ou_nobody"])
        assert directory.names["ou_bob"] == "Bob"
        assert len(feishu.calls("users.batch")) == 1
        clock.now += FRESH_S + 1
        await directory.look_up(["ou_bob", "ou_nobody"])
        assert (directory.names["ou_bob"], directory.names["ou_nobody"]) == ("Robert", "")
        assert feishu.violations == []
