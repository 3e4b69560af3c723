"""The files in deploy/monitoring, with a real Prometheus that scrapes the real service."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus.platform import ConnectionState, Disposition
from gateway.metrics import METRICS, RUN_ENDS
from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.fakes.prometheus import (
    ALERTS,
    MISSING,
    MONITORING,
    PROGRAM,
    PROMTOOL,
    Prometheus,
    prometheus,
)
from tests.journeys.service import serving, with_model
from tests.people.telegram import TelegramPrivateUser

DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"][0]["rules"]
RULE_TESTS = Path(__file__).with_name("alerts_test.yaml")
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]

OF_THE_PROCESS = {
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds",
}  # fmt: skip
"""Metrics in use that come from the client library, which chooses their names."""


def test_only_metrics_and_values_that_exist_are_used() -> None:
    used = [*EXPRESSIONS, *(rule["expr"] for rule in RULES)]
    names = {name for text in used for name in re.findall(r"\b(?:parley|process)_[a-z_]+", text)}
    assert {name.removesuffix("_bucket") for name in names} <= METRICS.keys() | OF_THE_PROCESS
    known = {*Disposition, *ConnectionState, *RUN_ENDS, "new", "pending", "uncertain", "ok"}
    values = {value for text in used for value in re.findall(r'[a-z]=~?"([a-z_|]+)"', text)}
    assert {word for value in values for word in value.split("|")} <= known | {"parley"}


def test_the_panels_stand_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        rows, columns = range(at["y"], at["y"] + at["h"]), range(at["x"], at["x"] + at["w"])
        cells = {(row, column) for row in rows for column in columns}
        assert not cells & taken, panel["title"]
        assert max(columns) < 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.skipif(PROMTOOL is None, reason=MISSING)
def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(RULE_TESTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]
    assert [test["name"] for test in tests] == [rule["alert"] for rule in RULES]


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
async def test_prometheus_reads_the_service_and_sees_a_channel_fail(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, FakeModelServer() as model:
        section = {
            "enabled": True,
            "base_url": telegram.base_url,
            "bot_token": telegram.token,
            "dm_policy": "open",
        }
        config = {**with_model(model.base_url), "channels": {"telegram": section}}
        async with serving(tmp_path, config, "telegram") as service:
            user = TelegramPrivateUser(telegram)
            await user.send("hello")
            await eventually(user.bot_messages)
            token = (service.files / "admin_token").read_text().strip()
            target = service.url.removeprefix("http://")
            async with prometheus(tmp_path, target=target, token=token) as server:
                accepted = 'parley_channel_events_total{job="parley", reason="accepted"}'
                [sample] = await eventually(lambda: server.query(accepted))
                assert sample["metric"]["channel"] == "telegram"
                await _check_dashboard(server)
                telegram.revoke()
                await eventually(
                    lambda: _alerts(server), lambda names: "ParleyChannelFailed" in names
                )
                assert await _unhealthy_rules(server) == []


async def _check_dashboard(server: Prometheus) -> None:
    for expression in EXPRESSIONS:
        whole = expression.replace("$job", "parley").replace("$__rate_interval", "1m")
        await server.query(whole)
        if "rate(" not in whole and "retries" not in whole:
            assert await server.query(whole), whole


async def _alerts(server: Prometheus) -> set[str]:
    data = await server.ask("alerts")
    return {alert["labels"]["alertname"] for alert in data["alerts"]}


async def _unhealthy_rules(server: Prometheus) -> list[str]:
    data = await server.ask("rules")
    rules = [rule for group in data["groups"] for rule in group["rules"]]
    assert len(rules) == len(RULES)
    return [rule["name"] for rule in rules if rule["health"] not in ("ok", "unknown")]
