"""`parley doctor`: reports working parts, problems and fixes, with and without a running service."""

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from bots.common.diagnosis import CheckResult, Severity
from gateway.checks import machine
from gateway.checks.report import MACHINE, MODELS, VOICE, DoctorReport
from gateway.cli import main
from gateway.commands.doctor import run_checks
from gateway.config import Config, load_config
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.langgraph import FakeLangGraph
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer
from tests.gateway.test_cli import one_line, parley
from tests.journeys.service import serving, with_model
from tests.ports import free_port

KEY = "sk-a-very-secret-key"


async def examined(
    folder: Path, tree: Mapping[str, Any], *, ask_models: bool = True
) -> DoctorReport:
    report = await run_checks(_configured(folder, tree), ask_models=ask_models)
    assert not (folder / "home").exists()  # the check writes nothing
    return report


def of(report: DoctorReport, area: str) -> dict[str, CheckResult]:
    return {finding.subject: finding for finding in report.areas.get(area, [])}


def platforms(slack: FakeSlack, telegram: TelegramServer, feishu: FakeFeishu) -> dict[str, Any]:
    return {
        "slack": {
            "enabled": True, "base_url": slack.base_url, "bot_token": slack.bot_token,
            "app_token": slack.app_token,
        },
        "telegram": {
            "enabled": True, "base_url": telegram.base_url, "base_file_url": telegram.base_file_url,
            "bot_token": telegram.token,
        },
        "feishu": feishu.settings,
    }  # fmt: skip


async def test_a_working_installation_has_no_problems(tmp_path: Path) -> None:
    async with (
        FakeSlack() as slack,
        TelegramServer() as telegram,
        FakeFeishu() as feishu,
        FakeModelServer() as model,
    ):
        telegram.push({"poll": {}})  # an update is waiting, so the poll returns at once
        channels = platforms(slack, telegram, feishu)
        hook = {"secret": "0123456789abcdef", "channel": "slack", "chat": "C1", "prompt": "x"}
        tree = {"channels": channels, "hooks": {"builds": hook}}
        report = await examined(tmp_path, {**with_model(model.base_url), **tree})
        assert report.healthy, report.text()
        assert of(report, "slack")["hook builds"].text == "hmac, into slack C1"
        assert list(report.areas) == [MACHINE, MODELS, "slack", "telegram", "feishu"]
        assert of(report, MACHINE)["service"].text == "not running"
        (answered,) = report.areas[MODELS]
        assert "answered in" in answered.text
        assert len(model.requests) == 1
        assert not slack.violations + telegram.violations + feishu.violations


async def test_the_speech_service_is_tried_with_a_second_of_speech(tmp_path: Path) -> None:
    async with FakeSpeechServer(texts=["This is a test."]) as speech:
        speech.answer(SpeechAnswer(), SpeechAnswer(status=404, error="Not Found", form="fastapi"))
        tree = {"voice": speech.config}
        report = await examined(tmp_path, tree)
        assert of(report, VOICE)["voice"].text.startswith("whisper-1 understood “This is a test.”")
        report = await examined(tmp_path, tree)
        assert of(report, VOICE)["voice"].text == "whisper-1 understood nothing"
        report = await examined(tmp_path, tree)
        found = of(report, VOICE)["voice"]
        assert (found.text, found.severity) == ("HTTP 404: Not Found", Severity.PROBLEM)
        assert "/v1" in found.fix
        wrong = {"voice": {**speech.config, "api_key": "sk-other"}}
        found = of(await examined(tmp_path, wrong), VOICE)["voice"]
        assert found.text == "HTTP 401: Incorrect API key provided."
        assert "voice.api_key" in found.fix
        assert VOICE not in (await examined(tmp_path, tree, ask_models=False)).areas
        [request, *_] = speech.requests
        assert request.audio.startswith(b"OggS")
        assert speech.violations == []


async def test_a_local_speech_model_needs_its_package(tmp_path: Path) -> None:
    report = await examined(tmp_path, {"voice": {"local_model": "small"}})
    assert "faster-whisper is not installed" in of(report, VOICE)["voice"].text
    problems = [one.text for one in report.areas[MACHINE] if one.severity is Severity.PROBLEM]
    assert any("faster-whisper is not installed" in text for text in problems)


async def test_each_problem_is_listed_with_its_platform_and_fix(tmp_path: Path) -> None:
    async with FakeSlack() as slack, TelegramServer() as telegram, FakeFeishu() as feishu:
        channels = platforms(slack, telegram, feishu)
        slack.server.scopes -= {"files:read"}
        telegram.revoke()
        feishu.rest.scopes -= {"im:message:send_as_bot"}
        report = await examined(tmp_path, {"channels": channels}, ask_models=False)
        assert not report.healthy
        assert of(report, "slack")["permissions"].severity is Severity.WARNING
        assert of(report, "telegram")["bot"].severity is Severity.PROBLEM
        assert of(report, "feishu")["permissions"].severity is Severity.PROBLEM
        assert MODELS not in report.areas or not report.areas[MODELS]
        text = report.text()
        assert "-> send /token to @BotFather" in text
        assert text.endswith("2 problems and 1 warning.\n")
        for secret in (slack.bot_token, slack.app_token, telegram.token, feishu.app_secret):
            assert secret not in text + report.json()


async def test_missing_settings_are_reported_once_with_the_platform(
    tmp_path: Path,
) -> None:
    channels = {"telegram": {"enabled": True}}
    report = await examined(tmp_path, {"channels": channels}, ask_models=False)
    assert [f.severity for f in report.results].count(Severity.PROBLEM) == 1
    finding = of(report, "telegram")["settings"]
    assert "channels.telegram.bot_token" in finding.text
    assert "channels.telegram.enabled" in finding.fix


async def test_a_misspelled_key_is_a_problem(tmp_path: Path) -> None:
    tree = {"channels": {"slack": {"bot_tokn": "x"}}, "gateway": {"prot": 1}}
    report = await examined(tmp_path, tree, ask_models=False)
    assert [one.text.partition(": ")[2] for one in report.areas[MACHINE] if one.severity is Severity.PROBLEM] == [
        "gateway.prot: unknown key, ignored; did you mean `port`?",
        "channels.slack.bot_tokn: unknown key, ignored; did you mean `bot_token`?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "part", "fix"),
    [
        (ModelReply(status=401), "auth (HTTP 401", "api_key"),
        (ModelReply(status=404), "request (HTTP 404", "/v1"),
        (ModelReply(status=404, error_text="No model m"), "No model m", "`model`"),
        (ModelReply(status=400, error_text=f"bad {KEY}"), "request (HTTP 400", "`model`"),
        (ModelReply(drop_after=0), "connection", "base_url"),
    ],
)
async def test_a_model_that_does_not_answer(
    tmp_path: Path, reply: ModelReply, part: str, fix: str
) -> None:
    async with FakeModelServer(answer=lambda _: reply) as server:
        tree = with_model(server.base_url)
        tree["models"][0] |= {"api_key": KEY, "max_retries": 0}
        report = await examined(tmp_path, tree)
        (finding,) = report.areas[MODELS]
        assert finding.severity is Severity.PROBLEM
        assert part in finding.text
        assert fix in finding.fix
        assert KEY not in report.text()


async def test_a_models_address_without_a_scheme_is_reported(tmp_path: Path) -> None:
    tree = with_model("127.0.0.1:8000/v1")
    (finding,) = (await examined(tmp_path, tree)).areas[MODELS]
    assert finding.text == "base_url: must start with http:// or https://"
    assert finding.fix == "correct base_url"


async def test_models_that_cannot_be_built_and_the_demo(tmp_path: Path) -> None:
    (finding,) = (await examined(tmp_path, {})).areas[MODELS]
    assert (finding.severity, "demo" in finding.text) == (Severity.NOTE, True)
    wrong = {"models": [{"name": "a", "use": "no_such_package:Chat", "model": "m"}]}
    (finding,) = (await examined(tmp_path, wrong)).areas[MODELS]
    assert finding.severity is Severity.PROBLEM
    assert "no_such_package" in finding.text


async def test_another_server_that_runs_the_turns(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        report = await examined(tmp_path, {"channels": {"langgraph_url": server.url}})
        (finding,) = report.areas[MODELS]
        assert (finding.subject, finding.severity) == ("runs", Severity.OK)
    report = await examined(tmp_path, {"channels": {"langgraph_url": server.url}})
    (finding,) = report.areas[MODELS]
    assert finding.severity is Severity.PROBLEM
    assert "langgraph_url" in finding.fix


async def test_little_disk_space_is_reported(tmp_path: Path) -> None:
    free_mb = shutil.disk_usage(tmp_path).free // 1_000_000
    sandbox = {"min_free_disk_mb": int(free_mb * 2)}
    report = await examined(tmp_path, {"sandbox": sandbox}, ask_models=False)
    finding = of(report, MACHINE)["data folder"]
    assert finding.severity is Severity.WARNING
    assert "min_free_disk_mb" in finding.text


async def test_a_database_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    url = f"postgresql://parley:{KEY}@127.0.0.1:{free_port()}/parley"
    cases: dict[str, tuple[str, bytes, dict[str, Any]]] = {
        "parley.db is damaged": ("parley.db", b"no database" * 1000, {}),
        "checkpoints.db is damaged": ("checkpoints.db", b"no database" * 1000, {}),
        "written by a newer version": ("parley.db", _newer_database(tmp_path), {}),
        "PostgreSQL cannot be used": ("parley.db", b"", {"database": {"url": url}}),
    }
    for expected, (name, content, tree) in cases.items():
        (home / name).write_bytes(content)
        report = await run_checks(_configured(tmp_path, tree), ask_models=False)
        finding = of(report, MACHINE)["database"]
        assert finding.severity is Severity.PROBLEM
        assert expected in finding.text
        assert KEY not in report.text() + report.json()
        assert (home / name).read_bytes() == content
        (home / name).unlink()
    assert of(await run_checks(_configured(tmp_path, {}), ask_models=False), MACHINE)[
        "database"
    ] == CheckResult(subject="database", text="SQLite")


def _configured(folder: Path, tree: Mapping[str, Any]) -> Config:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"gateway": {"port": free_port()}, **tree}))
    return load_config(str(file), {"PARLEY_HOME": str(folder / "home")})


def _newer_database(folder: Path) -> bytes:
    file = folder / "newer.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE parley_schema (version INTEGER, applied_at INTEGER)")
        connection.execute("INSERT INTO parley_schema VALUES (9999, 0)")
        connection.commit()
    return file.read_bytes()


def test_a_file_without_admin_token_is_a_problem(tmp_path: Path) -> None:
    """`serve` does not start with it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin_token").touch()
    code, _, err = parley(tmp_path, "check", config="")
    assert code == 1
    assert "admin_token: does not contain an admin token: delete the file" in one_line(err)


async def test_a_sandbox_that_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    sandbox = {"use": "bubblewrap", "bubblewrap_path": "/no/bwrap"}
    report = await examined(tmp_path, {"sandbox": sandbox}, ask_models=False)
    assert of(report, MACHINE)["sandbox"].severity is Severity.PROBLEM
    sandbox = {"use": "auto", "bubblewrap_path": "/no/bwrap"}
    report = await examined(tmp_path, {"sandbox": sandbox}, ask_models=False)
    assert of(report, MACHINE)["sandbox"].severity is Severity.NOTE


def test_a_data_folder_on_a_disk_that_is_gone(tmp_path: Path) -> None:
    sandbox = load_config(None, {"PARLEY_CONFIG": ""}).agent.sandbox
    assert machine.check_data_folder(tmp_path / "a" / "b", sandbox).severity is Severity.OK


def test_doctor_prints_json_for_programs() -> None:
    report = DoctorReport()
    report.add(
        "slack", CheckResult(subject="clock", text="slow", severity=Severity.WARNING, fix="set it")
    )
    told = json.loads(report.json())
    assert told["healthy"] is True
    assert told["checks"] == [
        {
            "area": "slack",
            "subject": "clock",
            "severity": "warning",
            "text": "slow",
            "fix": "set it",
        }
    ]


async def test_a_running_service_is_not_disturbed(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, FakeSlack() as slack, FakeFeishu() as feishu:
        channels = platforms(slack, telegram, feishu)
        async with serving(tmp_path, {"channels": channels}, *channels) as service:
            polls = len(telegram.calls("getUpdates"))
            code, out, err = await service.command("doctor", "--json")
            told = json.loads(out)
            assert (code, told["healthy"], err) == (0, True, "")
            found = {(row["area"], row["subject"]): row for row in told["checks"]}
            assert found[MACHINE, "service"]["text"] == f"running at {service.url}"
            assert found["telegram", "service"]["text"] == "connected"
            assert found["telegram", "polling"]["severity"] == "ok"
            assert ("slack", "connection") not in found
            assert slack.sockets.connects == 1
            assert len(telegram.calls("getUpdates")) <= polls + 1  # the service's own file


def test_doctor_exits_with_0_without_problems(tmp_path: Path) -> None:
    config = f"gateway: {{port: {free_port()}}}"
    code, out, err = parley(tmp_path, "doctor", "--no-model", config=config)
    assert (code, err) == (0, "")
    assert "No problems found." in out
    assert "`parley init`" in out


def test_a_configuration_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("gateway: {port: x}")
    assert main(["doctor", "--config", str(file)]) == 2
    assert "gateway.port" in one_line(capsys.readouterr().err)
    assert main(["doctor", "--json", "--config", str(file)]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["healthy"] is False
    assert told.err == ""
