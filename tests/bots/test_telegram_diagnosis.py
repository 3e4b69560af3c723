"""`parley doctor` reports a Telegram bot's problems and how to fix them."""

from dataclasses import replace

import anyio
import pytest

from bots.common.diagnosis import CheckResult, DiagnosisOptions, Severity
from bots.config import TelegramConfig
from bots.telegram.diagnosis import diagnose
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import COMMANDS, FAST, adapter_for, config_for, running
from tests.fakes.intake import RecordingIntake

ALONE = DiagnosisOptions(channel="telegram", exclusive=True, commands=COMMANDS)
BESIDE = DiagnosisOptions(
    channel="telegram", exclusive=False, service_running=True, commands=COMMANDS
)
BRIEF = replace(FAST, poll_s=1)


async def look(
    telegram: TelegramServer, look: DiagnosisOptions = ALONE, **given: object
) -> dict[str, CheckResult]:
    section = config_for(telegram).model_copy(update=given)
    found = await diagnose(section, look, timeouts=BRIEF)
    for finding in found:
        assert section.bot_token not in finding.text + finding.fix
        assert finding.fix or finding.severity is Severity.OK
    return {finding.subject: finding for finding in found}


async def test_a_working_bot_has_no_problems() -> None:
    async with TelegramServer() as telegram:
        telegram.commands = [{"command": c.name, "description": c.help} for c in COMMANDS]
        found = await look(telegram)
        assert list(found) == ["bot token", "groups", "polling", "commands", "clock"]
        assert {f.severity for f in found.values()} == {Severity.OK}
        assert found["bot token"].text == "@parley_bot"
        assert "privacy mode is on" in found["groups"].text
        assert telegram.violations == []


async def test_privacy_mode_matters_only_where_all_messages_are_wanted() -> None:
    async with TelegramServer() as telegram:
        finding = (await look(telegram, BESIDE, group_policy="open"))["groups"]
        assert finding.severity is Severity.WARNING
        assert "/setprivacy" in finding.fix
    async with TelegramServer(privacy=False) as telegram:
        finding = (await look(telegram, BESIDE, group_policy="open"))["groups"]
        assert (finding.severity, "off" in finding.text) == (Severity.OK, True)


async def test_a_webhook_that_blocks_polling_is_reported_by_host() -> None:
    async with TelegramServer() as telegram:
        telegram.webhook = "https://other.example.org/secret-path"
        found = await look(telegram)
        assert found["webhook"].severity is Severity.WARNING
        assert "other.example.org" in found["webhook"].text
        assert "secret-path" not in found["webhook"].text
        assert "polling" not in found
        assert telegram.calls("getUpdates") == []
        assert telegram.webhook  # the check changes nothing


async def test_another_poller_is_found() -> None:
    async with TelegramServer() as telegram, running(adapter_for(telegram), RecordingIntake()):
        await telegram.wait_for(lambda: telegram.calls("getUpdates"))
        finding = (await look(telegram))["polling"]
        assert finding.severity is Severity.PROBLEM
        assert "Another process polls" in finding.text


async def test_beside_a_running_service_nothing_is_polled() -> None:
    async with TelegramServer() as telegram:
        assert (await look(telegram, BESIDE))["polling"].severity is Severity.OK
        telegram.dm("hello")
        finding = (await look(telegram, BESIDE))["polling"]
        assert finding.severity is Severity.WARNING
        assert "1 message(s) wait" in finding.text
        assert telegram.calls("getUpdates") == []


async def test_waiting_messages_are_reported_and_kept() -> None:
    async with TelegramServer() as telegram:
        telegram.dm("hello")
        finding = (await look(telegram))["polling"]
        assert (finding.severity, finding.text[:1]) == (Severity.OK, "1")
        assert telegram.backlog == 1


async def test_commands_that_are_not_listed_yet() -> None:
    async with TelegramServer() as telegram:
        finding = (await look(telegram, BESIDE))["commands"]
        assert finding.severity is Severity.NOTE
        assert "help, new" in finding.text


async def test_a_revoked_token_is_reported() -> None:
    async with TelegramServer() as telegram:
        telegram.revoke()
        found = await look(telegram)
        assert found["bot"].severity is Severity.PROBLEM
        assert "@BotFather" in found["bot"].fix


@pytest.mark.parametrize("token", ["nonsense", "a b", ""])
async def test_malformed_tokens_are_reported(token: str) -> None:
    async with TelegramServer() as telegram:
        section = config_for(telegram).model_copy(update={"bot_token": token})
        found = {f.subject: f for f in await diagnose(section, ALONE, timeouts=BRIEF)}
        assert found["bot"].severity is Severity.PROBLEM


async def test_a_telegram_out_of_reach() -> None:
    async with TelegramServer() as telegram:
        await telegram.refuse()
        with anyio.fail_after(20):
            found = await look(telegram)
        assert list(found) == ["bot"]
        assert found["bot"].severity is Severity.PROBLEM
        assert "network" in found["bot"].fix
        assert "network" not in found["bot"].text


@pytest.mark.parametrize(
    ("given", "url", "grade", "part"),
    [
        ({}, "", Severity.PROBLEM, "webhook_url and channels.telegram.webhook_secret"),
        ({"webhook_url": "https://a.example/x"}, "", Severity.PROBLEM, "webhook_secret"),
        ({"webhook_url": "https://a.example/x", "webhook_secret": "s"}, "", Severity.NOTE, "none is set"),
        (
            {"webhook_url": "https://a.example/x", "webhook_secret": "s"},
            "https://b.example/y", Severity.NOTE, "b.example",
        ),
        (
            {"webhook_url": "https://a.example/x", "webhook_secret": "s"},
            "https://a.example/x", Severity.OK, "a.example",
        ),
    ],
)  # fmt: skip
async def test_the_webhook_is_checked_in_webhook_mode(
    given: dict[str, str], url: str, grade: Severity, part: str
) -> None:
    async with TelegramServer() as telegram:
        telegram.webhook = url
        finding = (await look(telegram, ALONE, mode="webhook", **given))["webhook"]
        assert (finding.severity, part in finding.text) == (grade, True)


async def test_an_invalid_base_url_is_reported() -> None:
    section = TelegramConfig(enabled=True, bot_token="1:a", base_url="nonsense")
    found = await diagnose(section, ALONE, timeouts=BRIEF)
    assert found[0].severity is Severity.PROBLEM
