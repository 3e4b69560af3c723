"""`parley doctor` reports a Slack app's problems and how to fix them."""

import pytest

from bots.common.diagnosis import CheckResult, DiagnosisOptions, Severity
from bots.slack.capabilities import BOT_SCOPES
from bots.slack.diagnosis import WITHOUT, diagnose
from gateway.playground.slack.server import FakeSlack
from tests.bots.slack_rig import config, running

ALONE = DiagnosisOptions(channel="slack-support", exclusive=True)
BESIDE = DiagnosisOptions(channel="slack-support", exclusive=False)


async def look(
    slack: FakeSlack, look: DiagnosisOptions = ALONE, **given: object
) -> dict[str, CheckResult]:
    found = await diagnose(config(slack, given), look)
    for finding in found:
        assert slack.bot_token not in finding.text + finding.fix
        assert slack.app_token not in finding.text + finding.fix
        assert finding.fix or finding.severity in (Severity.OK, Severity.NOTE)
    return {finding.subject: finding for finding in found}


async def test_a_working_app_has_no_problems() -> None:
    async with FakeSlack() as slack:
        found = await look(slack)
        assert list(found) == [
            "bot token", "permissions", "agent", "app token", "connection", "events", "clock",
        ]  # fmt: skip
        assert {name for name, f in found.items() if f.severity is not Severity.OK} == {"events"}
        assert found["bot token"].text == "@parley in Team"
        assert str(len(BOT_SCOPES)) in found["permissions"].text
        assert "is not declared an agent" in found["agent"].text
        assert slack.violations == []
        await slack.wait_for(lambda: not slack.sockets.open)


async def test_an_agent_is_known_by_its_permission() -> None:
    async with FakeSlack() as slack:
        slack.declare_agent()
        assert "is declared an agent" in (await look(slack))["agent"].text


async def test_missing_permissions_are_named_with_what_they_are_for() -> None:
    async with FakeSlack() as slack:
        slack.server.scopes -= {"reactions:write", "channels:history"}
        finding = (await look(slack))["permissions"]
        assert finding.severity is Severity.WARNING
        assert "channels:history (it does not hear follow-ups" in finding.text
        assert "reactions:write" in finding.text
        assert "parley slack manifest" in finding.fix
        assert "Reinstall" in finding.fix
        slack.server.scopes -= {"im:history"}
        assert (await look(slack))["permissions"].severity is Severity.PROBLEM


async def test_a_wrong_token_of_either_kind() -> None:
    async with FakeSlack() as slack:
        found = await look(slack, bot_token="xoxb-wrong")
        assert found["bot token"].severity is Severity.PROBLEM
        assert "invalid_auth" in found["bot token"].text
        assert "xoxb-" in found["bot token"].fix
        assert "channels.slack-support.bot_token" in found["bot token"].fix
        found = await look(slack, app_token="xapp-wrong")
        assert found["bot token"].severity is Severity.OK
        assert found["app token"].severity is Severity.PROBLEM
        assert "connections:write" in found["app token"].fix
        assert "channels.slack-support.app_token" in found["app token"].fix
        found = await look(slack, bot_token=slack.app_token, app_token=slack.bot_token)
        assert "channels.slack-support.bot_token and app_token" in found["bot token"].text


async def test_socket_mode_that_is_off() -> None:
    async with FakeSlack() as slack:
        slack.sockets.disabled = True
        finding = (await look(slack))["connection"]
        assert (finding.severity, finding.text) == (Severity.PROBLEM, "Socket Mode is off")


async def test_a_second_process_with_the_same_app_is_seen() -> None:
    async with FakeSlack() as slack, running(slack):
        finding = (await look(slack))["connection"]
        assert finding.severity is Severity.WARNING
        assert "1 other connection" in finding.text


async def test_beside_a_running_service_no_connection_is_opened() -> None:
    async with FakeSlack() as slack:
        found = await look(slack, BESIDE)
        assert found["app token"].severity is Severity.OK
        assert "connection" not in found
        assert slack.sockets.connects == 0


async def test_an_event_received_during_a_diagnosis_is_delivered_again() -> None:
    async with FakeSlack(ack_window_s=0.2, retries_s=(0.05,) * 200) as slack:
        slack.sockets.greets = False
        asked = slack.dm("hello")
        await look(slack)
        envelope = slack.sockets.envelopes[0]
        assert envelope.payload["event"]["ts"] == asked.ts
        async with running(slack, connected=False):
            await slack.wait_for(lambda: envelope.acked)


async def test_over_http_the_signing_secret_is_wanted_and_no_app_token() -> None:
    async with FakeSlack() as slack:
        found = await look(slack, mode="http", app_token="", signing_secret=None)
        assert found["signing secret"].severity is Severity.PROBLEM
        assert "channels.slack-support.signing_secret" in found["signing secret"].fix
        found = await look(slack, mode="http", app_token="", signing_secret="s" * 32)
        assert found["signing secret"].severity is Severity.OK
        assert "app token" not in found


async def test_an_unreachable_slack_is_reported() -> None:
    async with FakeSlack() as slack:
        settings = config(slack)
        await slack.go_offline()
        found = {f.subject: f for f in await diagnose(settings, ALONE)}
        assert found["bot token"].severity is Severity.PROBLEM
        assert "cannot be reached" in found["bot token"].text
        assert "channels.slack-support.base_url" in found["bot token"].fix
        assert "clock" not in found
        await slack.come_back()


@pytest.mark.parametrize("body", ["<html>login</html>", "[]", "null"])
async def test_a_page_instead_of_an_answer(body: str) -> None:
    async with FakeSlack() as slack:
        slack.fail("auth.test", body=body)
        found = await look(slack)
        assert found["bot token"].severity is Severity.PROBLEM


async def test_a_persons_token_is_recognized() -> None:
    async with FakeSlack() as slack:
        slack.server.methods.token_of = "ann"
        finding = (await look(slack))["bot token"]
        assert finding.severity is Severity.PROBLEM
        assert "belongs to a person (ann)" in finding.text


def test_the_permissions_that_are_explained_exist() -> None:
    assert set(WITHOUT) <= set(BOT_SCOPES)
