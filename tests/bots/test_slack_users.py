"""Members, guests and people of other companies on Slack are identified before the bus decides."""

from typing import Any

import pytest

from bots.slack.payload import SlackIdentity
from bots.slack.users import classify
from bus.messages import MessageEdit, SenderKind
from tests.bots.slack_rig import fast_slack, running
from tests.fakes.intake import RecordingIntake

GRID = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT", enterprise_id="E1")
ORG = SlackIdentity(
    team_id="E1", user_id="UBOT", bot_id="BBOT", enterprise_id="E1", is_org_install=True
)
ALONE = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT")


@pytest.mark.parametrize(
    ("me", "user", "kind"),
    [
        (ALONE, {"team_id": "T1"}, "member"),
        (ALONE, {"team_id": "T1", "is_restricted": True}, "guest"),
        (ALONE, {"team_id": "T1", "is_restricted": True, "is_ultra_restricted": True}, "guest"),
        (ALONE, {"team_id": "T2"}, "external"),
        (ALONE, {"team_id": "T2", "is_restricted": True}, "external"),
        (ALONE, {"team_id": "T1", "is_stranger": True}, "external"),
        (ALONE, {"team_id": "T2", "enterprise_user": {"enterprise_id": "E2"}}, "external"),
        (GRID, {"team_id": "T2", "enterprise_user": {"enterprise_id": "E1"}}, "member"),
        (GRID, {"team_id": "T2", "enterprise_user": {"enterprise_id": "E2"}}, "external"),
        (ORG, {"team_id": "T7", "enterprise_user": {"enterprise_id": "E1"}}, "member"),
        (ORG, {"team_id": "T7"}, "external"),
        (ALONE, {}, "unknown"),
        (ALONE, {"team_id": 7, "enterprise_user": "?"}, "unknown"),
    ],
)
def test_users_are_classified(me: SlackIdentity, user: dict[str, Any], kind: str) -> None:
    assert classify(user, me) == kind


async def test_messages_commands_and_presses_name_outsiders() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.person("U2GUEST", is_restricted=True)
        slack.person("U3OTHER", team_id="T9OTHER")
        slack.person("U4HIDDEN", is_hidden=True)
        asked = slack.mention("as a member")
        slack.mention("as a guest", user="U2GUEST")
        slack.mention("from another company", user="U3OTHER", team="T9OTHER")
        slack.mention("from nowhere", user="U4HIDDEN")
        slack.slash("status", user="U2GUEST")
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        kinds: dict[str, SenderKind] = {i.text: i.sender.kind for i in intake.received}
        assert kinds == {
            "as a member": "member",
            "as a guest": "guest",
            "from another company": "external",
            "from nowhere": "external",
            "/status": "guest",
        }
        slack.act(asked, "parley.0", "stop:1:0", user="U3OTHER")
        await slack.wait_for(lambda: intake.pressed)
        assert intake.pressed[0].sender.kind == "external"
        assert len(slack.asked("users.info")) == 4
        assert adapter.health().detail == ""
    assert slack.violations == []


async def test_an_edit_names_outsiders() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.person("U2GUEST", is_restricted=True)
        slack.edit(slack.dm("hello", user="U2GUEST"), "hello there")
        await slack.wait_for(lambda: intake.changed)
    (edit,) = intake.changed
    assert isinstance(edit, MessageEdit)
    assert edit.edited.sender.kind == "guest"


async def test_after_a_failed_lookup_the_event_is_delivered_again() -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake):
        slack.person("U2GUEST", is_restricted=True)
        slack.fail("users.info", status=503, times=2)
        slack.dm("hello", user="U2GUEST")
        await slack.wait_for(lambda: slack.sockets.envelopes[0].acked)
        assert slack.sockets.envelopes[0].attempts == 3
    assert [i.sender.kind for i in intake.received] == ["guest"]


async def test_a_lookup_beyond_the_rate_limit_waits_although_slack_gives_up() -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=0.3) as slack, running(slack, intake):
        slack.person("U2GUEST", is_restricted=True)
        slack.fail("users.info", status=429, headers={"Retry-After": "2"})
        slack.fail("users.list", status=429, headers={"Retry-After": "30"})
        slack.dm("hello", user="U2GUEST")
        await slack.wait_for(lambda: slack.sockets.envelopes[0].dropped)
        await slack.wait_for(lambda: intake.received)
    assert {i.sender.kind for i in intake.received} == {"guest"}
    assert len({i.event_id for i in intake.received}) == 1


async def test_people_beyond_the_rate_limit_are_found_in_the_user_list() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.server.limits.tiers["t4"] = 5
        slack.server.methods.page_size = 4
        slack.person("U7GUEST", is_restricted=True)
        people = [f"U{number}" for number in range(20)] + ["U7GUEST"]
        for user in people:
            slack.dm("hello", user=user)
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        kinds = {i.sender.user_id: i.sender.kind for i in intake.received}
        assert kinds == dict.fromkeys(people, "member") | {"U7GUEST": "guest"}
        assert len(slack.asked("users.list")) == 6  # 21 people and the bot, four a page
        assert all(e.attempts == 1 for e in slack.sockets.envelopes)
    assert slack.violations == []


async def test_people_missing_from_the_list_wait_until_slack_answers() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.person("U3OTHER", team_id="T9OTHER")
        slack.fail("users.info", status=429, headers={"Retry-After": "1"})
        slack.fail("users.list", status=429, headers={"Retry-After": "30"})
        slack.dm("hello", user="U3OTHER", team="T9OTHER")
        await slack.wait_for(lambda: intake.received)
        assert len(slack.asked("users.info")) == 2
        assert len(slack.asked("users.list")) == 1
    assert [i.sender.kind for i in intake.received] == ["external"]


async def test_without_the_permission_nobody_counts_as_a_member(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack:
        slack.server.scopes.discard("users:read")
        async with running(slack, intake, name="slack-support"):
            slack.dm("hello")
            slack.dm("from outside", user="U3OTHER", team="T9OTHER")
            await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
    assert {i.text: i.sender.kind for i in intake.received} == {
        "hello": "unknown",
        "from outside": "external",
    }
    (warning,) = [m for m in caplog.messages if "members and guests" in m]
    assert warning.startswith("slack-support: ")


async def test_talk_among_others_is_not_looked_up() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.say("just talking")
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        assert slack.asked("users.info") == []
    assert [i.sender.kind for i in intake.received] == ["unknown"]
