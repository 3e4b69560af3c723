"""Whether a person is in a group, in groups with many members and for each status."""

from typing import Any

import pytest

from bots.slack import members as slack_members
from bus.messages import ReplyTarget
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.telegram.checks import specification
from gateway.playground.telegram.server import TelegramServer
from tests.bots.feishu_rig import adapter_for, running
from tests.bots.slack_rig import fast_slack
from tests.bots.slack_rig import running as running_slack
from tests.bots.telegram_rig import talking
from tests.fakes.intake import RecordingIntake

GROUP = "oc_team"


async def test_slack_is_asked_page_by_page() -> None:
    async with fast_slack() as slack, running_slack(slack) as adapter:
        people = {f"U{number}" for number in range(25)}
        slack.workspace.channel("C1", kind="channel", members=people)
        slack.server.methods.page_size = 10
        assert await adapter.is_member(ReplyTarget(chat="C1"), "U9") is True
        assert await adapter.is_member(ReplyTarget(chat="C1"), "UGONE") is False
        assert len(slack.asked("conversations.members")) == 6
        slack.server.methods.page_size = 2
        assert await adapter.is_member(ReplyTarget(chat="C1"), "UGONE") is None
        assert len(slack.asked("conversations.members")) == 6 + slack_members.MAX_PAGES
    assert slack.violations == []


async def test_feishu_is_asked_page_by_page() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake()):
            feishu.rest.scopes.add("im:chat.members:read")
            await feishu.say("hi", chat=GROUP, user="ou_member1")
            feishu.state.members[GROUP] = [f"ou_member{number}" for number in range(250)]
            assert await adapter.is_member(ReplyTarget(chat=GROUP), "ou_member240") is True
            assert await adapter.is_member(ReplyTarget(chat=GROUP), "ou_gone") is False
            assert len(feishu.calls("chat.members")) == 6
            feishu.state.members[GROUP] = []
            assert await adapter.is_member(ReplyTarget(chat=GROUP), "ou_gone") is None
        assert feishu.violations == []


def restricted(*, is_member: bool) -> dict[str, Any]:
    """Return a ChatMemberRestricted without its user."""
    names = [
        one["name"]
        for one in specification()["types"]["ChatMemberRestricted"]["fields"]
        if one["types"] == ["Boolean"]
    ]
    allowed = dict.fromkeys(names, False)
    return {**allowed, "status": "restricted", "until_date": 0, "is_member": is_member}


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        ({"status": "creator", "is_anonymous": False}, True),
        ({"status": "member"}, True),
        (restricted(is_member=True), True),
        (restricted(is_member=False), False),
        ({"status": "left"}, False),
        ({"status": "kicked", "until_date": 0}, False),
    ],
)
async def test_telegram_says_it_by_the_status(standing: dict[str, Any], expected: bool) -> None:
    async with TelegramServer() as telegram, talking(telegram) as (adapter, _):
        telegram.chat(-1001).standings[1001] = standing
        assert await adapter.is_member(ReplyTarget(chat="-1001"), "1001") is expected
    assert telegram.violations == []
