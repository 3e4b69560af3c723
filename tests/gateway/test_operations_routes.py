"""Readiness and metrics of the running service."""

import json
import os
import re
from pathlib import Path

import pytest

from gateway.metrics import METRICS
from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import ComposedService, composed
from tests.gateway.test_check_tools import small_disk

LINE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? \S+')
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


async def numbers(service: ComposedService) -> dict[str, float]:
    answer = await service.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines)
    split = [line.rpartition(" ") for line in lines]
    assert len({name for name, _, _ in split}) == len(split), "a series is listed twice"
    return {name: float(value) for name, _, value in split}


async def test_ready_shows_details_only_with_a_token(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        stranger = await service.stranger.get("/health/ready")
        assert (stranger.status_code, stranger.json()) == (200, {"status": "ready"})
        known = await service.client.get("/health/ready")
        assert known.json()["checks"] == {
            name: {"ok": True, "state": "ok", "detail": ""}
            for name in ("store", "channels", "model")
        }
        assert (await service.stranger.head("/health/ready")).status_code == 200


async def test_checks_that_are_not_ready_are_listed_with_their_state(tmp_path: Path) -> None:
    text = """
channels: {slack: {enabled: true, bot_token: xoxb-1-literal}}
models: [{name: big, use: "langchain_nowhere:ChatNowhere", model: big}]
"""
    async with composed(tmp_path, text) as service:
        stranger = await service.stranger.get("/health/ready")
        assert (stranger.status_code, stranger.json()) == (503, {"status": "not ready"})
        parts = (await service.client.get("/health/ready")).json()["checks"]
        assert parts["store"]["ok"] is True
        assert (parts["channels"]["ok"], parts["channels"]["state"]) == (False, "failed")
        assert "channels.slack.app_token is not set" in parts["channels"]["detail"]
        assert (parts["model"]["ok"], parts["model"]["state"]) == (False, "failed")
        assert "langchain_nowhere" in parts["model"]["detail"]
        assert (await service.stranger.get("/health")).status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize(
    ("size", "expected"), [("15m", (503, False, "full")), ("200m", (200, True, "low"))]
)
async def test_a_disk_without_space_for_the_next_messages_is_not_ready(
    tmp_path: Path, size: str, expected: tuple[int, bool, str]
) -> None:
    with small_disk(tmp_path / "disk", f"size={size}"):
        async with composed(tmp_path / "disk") as service:
            answer = await service.client.get("/health/ready")
    store = answer.json()["checks"]["store"]
    assert (answer.status_code, store["ok"], store["state"]) == expected
    assert "MB of disk space are free" in store["detail"]


@pytest.mark.parametrize(
    ("required", "expected"),
    [
        ([], (200, "degraded")),
        (["telegram"], (200, "degraded")),
        (["slack"], (503, "failed")),
        (["telegram", "feishu"], (503, "failed")),
    ],
)
async def test_a_broken_channel_among_working_ones_is_fatal_only_if_it_is_required(
    tmp_path: Path, required: list[str], expected: tuple[int, str]
) -> None:
    async with TelegramServer() as telegram:
        channels = {
            "slack": {"enabled": True, "bot_token": "xoxb-1-literal"},
            "telegram": {
                "enabled": True,
                "base_url": telegram.base_url,
                "base_file_url": telegram.base_file_url,
                "bot_token": telegram.token,
            },
        }
        config = {"channels": channels, "gateway": {"required_channels": required}}
        async with composed(tmp_path, json.dumps(config)) as service:
            bus = service.services.bus
            assert bus is not None
            await eventually(lambda: bus.health()["telegram"].state == "connected")
            answer = await service.client.get("/health/ready")
            found = answer.json()["checks"]["channels"]
            assert (answer.status_code, found["state"]) == expected
            assert "slack: channels.slack.app_token is not set" in found["detail"]
            assert ("feishu: The channel is required" in found["detail"]) == ("feishu" in required)


async def test_a_deleted_database_is_not_ready_and_checks_write_nothing(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        wal = tmp_path / "home" / "parley.db-wal"
        before = wal.stat().st_size, wal.stat().st_mtime_ns
        for _ in range(3):
            assert (await service.client.get("/health/ready")).status_code == 200
        assert (wal.stat().st_size, wal.stat().st_mtime_ns) == before
        (tmp_path / "home" / "parley.db").rename(tmp_path / "parley.db")
        found = (await service.client.get("/health/ready")).json()["checks"]["store"]
        assert (found["ok"], found["state"]) == (False, "failed")


async def test_models_are_judged_by_their_latest_calls(tmp_path: Path) -> None:
    first, second = ScriptedChatModel.playing(), ScriptedChatModel.playing()
    with registered(first) as one, registered(second) as other:
        two = {**other, "name": "second"}
        async with composed(tmp_path, json.dumps({"models": [one, two]})) as service:
            breakers = service.services.agent_services.circuit_breakers

            async def check_after_failures(name: str) -> tuple[int, str]:
                for _ in range(3):
                    with breakers.call(name) as call:
                        call.failed()
                answer = await service.client.get("/health/ready")
                return answer.status_code, answer.json()["checks"]["model"]["state"]

            assert await check_after_failures(one["name"]) == (200, "degraded")
            assert await check_after_failures(two["name"]) == (503, "unreachable")
            with breakers.call(two["name"]) as call:
                call.succeeded()
            assert (await service.client.get("/health/ready")).status_code == 200


async def test_a_model_that_is_left_alone_is_not_ready(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing()
    with registered(model) as keys:
        sections = {"models": [keys], "circuit_breaker": {"failure_threshold": 1}}
        async with composed(tmp_path, json.dumps(sections)) as service:
            breakers = service.services.agent_services.circuit_breakers
            with breakers.call(keys["name"]) as trial:
                trial.failed()
            found = (await service.client.get("/health/ready")).json()["checks"]["model"]
            assert (found["ok"], found["state"]) == (False, "unreachable")
            series = f'parley_model_circuit_open{{model="{keys["name"]}"}}'
            assert (await numbers(service))[series] == 1


async def test_metrics_count_what_happens(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        before = await numbers(service)
        assert before['parley_runs_total{status="success"}'] == 0
        terminal = service.services.terminal
        assert terminal is not None
        with terminal.attach("s1") as session:
            await session.say("hello")
            await eventually(
                lambda: numbers(service),
                lambda found: found['parley_runs_total{status="success"}'] >= 1,
            )
        await service.client.get("/api/models/none")
        await service.stranger.get("/api/made/up")
        now = await numbers(service)
        assert now['parley_channel_events_total{channel="terminal",reason="accepted"}'] == 1
        assert now['parley_channel_connection_state{channel="terminal",state="connected"}'] == 1
        assert now['parley_model_requests_total{model="demo",outcome="ok"}'] >= 1
        assert now["parley_run_duration_seconds_count"] == 1
        assert now['parley_run_duration_seconds_bucket{le="+Inf"}'] == 1
        label = 'method="GET",route="/api/models/{name}",status="404"'
        assert now[f"parley_http_requests_total{{{label}}}"] == 1
        assert now['parley_http_requests_total{method="GET",route="(none)",status="401"}'] == 1
        assert now["parley_http_requests_in_progress"] == 1
        assert now["process_resident_memory_bytes"] > 1e6
        assert now["process_cpu_seconds_total"] > 0
        assert not any("made" in name for name in now)


@pytest.mark.parametrize(
    ("setting", "known", "unknown"),
    [("token", 200, 401), ("open", 200, 200), ("off", 404, 401)],
)
async def test_metrics_are_readable_as_configured(
    tmp_path: Path, setting: str, known: int, unknown: int
) -> None:
    async with composed(tmp_path, f"gateway: {{metrics: '{setting}'}}") as service:
        assert (await service.client.get("/metrics")).status_code == known
        assert (await service.stranger.get("/metrics")).status_code == unknown


def test_every_metric_is_documented_and_no_other() -> None:
    lines = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", REFERENCE.read_text(), re.M)
    ours = [line for line in lines if line[0].startswith("parley_")]
    assert ours == [
        (name, one.type, ", ".join(f"`{label}`" for label in one.labels) or "-", one.help)
        for name, one in METRICS.items()
    ]


async def test_every_exposed_metric_is_documented(tmp_path: Path) -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text(), re.M))
    async with composed(tmp_path) as service:
        page = (await service.client.get("/metrics")).text
    exposed = set(re.findall(r"^# TYPE (\w+) ", page, re.M))
    assert "parley_runs_total" in exposed
    assert "process_open_fds" in exposed
    assert exposed <= documented
