"""`parley doctor` reports a Feishu app's problems and how to fix them."""

from pathlib import Path

import pytest

from bots.common.diagnosis import CheckResult, DiagnosisOptions, Severity
from bots.config import FeishuConfig
from bots.feishu.diagnosis import diagnose
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import QUICK

LOOK = DiagnosisOptions(channel="feishu-cn", exclusive=True)


async def look(feishu: FakeFeishu, **given: object) -> dict[str, CheckResult]:
    section = FeishuConfig.model_validate(feishu.settings | given)
    found = await diagnose(section, LOOK, timeouts=QUICK)
    for finding in found:
        assert section.app_secret not in finding.text + finding.fix
        assert finding.fix or finding.severity in (Severity.OK, Severity.NOTE)
    return {finding.subject: finding for finding in found}


async def test_a_working_app_has_no_problems() -> None:
    async with FakeFeishu() as feishu:
        feishu.allow_cardkit()
        found = await look(feishu)
        assert list(found) == [
            "app secret", "app", "permissions", "streaming", "connection", "events", "clock",
        ]  # fmt: skip
        assert {name for name, f in found.items() if f.severity is not Severity.OK} == {"events"}
        assert feishu.connections == []
        assert feishu.violations == []


async def test_missing_permissions_are_named_with_what_they_are_for() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes -= {"im:message.reactions:write_only", "im:resource"}
        finding = (await look(feishu))["permissions"]
        assert finding.severity is Severity.WARNING
        assert "im:resource (no files to people)" in finding.text
        assert "publish" in finding.fix
        feishu.rest.scopes -= {"im:message:update"}
        finding = (await look(feishu))["permissions"]
        assert finding.severity is Severity.PROBLEM
        assert "im:message:update (cards" in finding.text


@pytest.mark.parametrize(
    ("given", "grade"), [({}, Severity.NOTE), ({"streaming": True}, Severity.WARNING)]
)
async def test_cards_that_cannot_stream_are_reported(
    given: dict[str, object], grade: Severity
) -> None:
    async with FakeFeishu() as feishu:
        finding = (await look(feishu, **given))["streaming"]
        assert (finding.severity, "cardkit:card:write" in finding.fix) == (grade, True)
        assert "streaming" not in await look(feishu, streaming=False)


async def test_recognition_of_speech_needs_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with FakeFeishu() as feishu:
        assert "speech" not in await look(feishu)
        feishu.rest.scopes.add("speech_to_text:speech")
        finding = (await look(feishu))["speech"]
        assert (finding.severity, "install ffmpeg" in finding.fix) == (Severity.NOTE, True)
        stub = tmp_path / "ffmpeg"
        stub.touch(mode=0o755)
        assert (await look(feishu))["speech"].severity is Severity.OK


async def test_a_wider_permission_does_as_well() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes = {
            "im:message", "im:message.p2p_msg", "im:message.group_at_msg", "im:resource",
        }  # fmt: skip
        assert (await look(feishu))["permissions"].severity is Severity.OK
        finding = (await look(feishu, group_policy="open"))["permissions"]
        assert "im:message.group_msg " in finding.text


async def test_permissions_that_cannot_be_asked_for() -> None:
    async with FakeFeishu() as feishu:
        feishu.fail("scopes", status=400, code=212100)
        assert (await look(feishu))["permissions"].severity is Severity.NOTE


@pytest.mark.parametrize("given", [{"app_secret": "wrong"}, {"app_id": "cli_unknown"}])
async def test_wrong_credentials_are_reported(given: dict[str, str]) -> None:
    async with FakeFeishu() as feishu:
        found = await look(feishu, **given)
        assert found["app secret"].severity is Severity.PROBLEM
        assert "App Secret" in found["app secret"].fix
        assert "larksuite" in found["app secret"].fix
        assert set(found) == {"app secret", "clock"}


@pytest.mark.parametrize(("state", "part"), [(1, "disabled it"), (3, "not enabled yet")])
async def test_an_app_that_is_not_in_use(state: int, part: str) -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.activate_status = state
        finding = (await look(feishu))["app"]
        assert (finding.severity, part in finding.text) == (Severity.PROBLEM, True)


async def test_settings_that_need_publication_are_no_problem_during_setup() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.scopes.clear()
        feishu.rest.activate_status = 0
        section = FeishuConfig.model_validate(feishu.settings)
        early = DiagnosisOptions(channel="feishu-cn", exclusive=False, setting_up=True)
        found = await diagnose(section, early, timeouts=QUICK)
        assert {f.severity for f in found} <= {Severity.OK, Severity.NOTE, Severity.WARNING}
        assert any("not installed" in f.text for f in found)
        wrong = section.model_copy(update={"app_secret": "wrong"})
        found = await diagnose(wrong, early, timeouts=QUICK)
        assert found[0].severity is Severity.PROBLEM


async def test_a_bot_ability_that_is_off() -> None:
    async with FakeFeishu() as feishu:
        feishu.rest.has_bot = False
        assert "Add Features, Bot" in (await look(feishu))["app"].fix


@pytest.mark.parametrize(
    ("code", "part"), [(1, "no long connection"), (1000040344, "refuses the app")]
)
async def test_a_platform_that_gives_no_long_connection(code: int, part: str) -> None:
    async with FakeFeishu() as feishu:
        feishu.refuse_connects(code)
        finding = (await look(feishu))["connection"]
        assert (finding.severity, part in finding.text) == (Severity.PROBLEM, True)


async def test_webhook_mode_wants_its_secrets() -> None:
    async with FakeFeishu() as feishu:
        finding = (await look(feishu, mode="webhook"))["webhook"]
        assert finding.severity is Severity.PROBLEM
        assert "channels.feishu-cn.encrypt_key" in finding.text
        secrets = {"encrypt_key": "k" * 16, "verification_token": "t" * 16}
        assert (await look(feishu, mode="webhook", **secrets))["webhook"].severity is Severity.OK


@pytest.mark.parametrize("domain", ["nonsense", "http://127.0.0.1:1", ""])
async def test_a_domain_without_an_address(domain: str) -> None:
    section = FeishuConfig(enabled=True, app_id="cli_a", app_secret="b", domain=domain)
    (finding,) = await diagnose(section, LOOK, timeouts=QUICK)
    assert finding.severity is Severity.PROBLEM


async def test_an_unreachable_domain_is_named_by_its_instance() -> None:
    section = FeishuConfig(
        enabled=True, app_id="cli_a", app_secret="b", domain="http://127.0.0.1:1"
    )
    (finding,) = await diagnose(section, LOOK, timeouts=QUICK)
    assert "channels.feishu-cn.domain" in finding.fix
