"""GET /api/findings and /api/figures: problems, how to fix them, and how much the service does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from gateway.figures import Figures
from gateway.playground.telegram.server import TelegramServer
from store.database import Database
from store.figures import FigureStore, PeriodFigures
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.gateway.composed import ComposedService, composed
from tests.gateway.test_messages_routes import message, received

Found = Mapping[tuple[str, str], Mapping[str, Any]]


async def findings(service: ComposedService, query: str = "") -> Mapping[str, Any]:
    answer = await service.client.get(f"/api/findings{query}")
    assert answer.status_code == 200, answer.text
    found: Mapping[str, Any] = answer.json()
    return found


def by_subject(report: Mapping[str, Any]) -> Found:
    return {(one["area"], one["subject"]): one for one in report["findings"]}


async def test_a_service_that_is_well_has_findings_of_every_area(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        report = await findings(service)
    bad = [one["text"] for one in report["findings"] if one["severity"] in ("problem", "warning")]
    assert bad == []
    found = by_subject(report)
    assert found["this machine", "database"]["text"] == "SQLite"
    assert found["this machine", "data folder"]["severity"] == "ok"
    assert found["terminal", "connection"]["text"] == "connected"
    assert ("models", "demo") in found


async def test_problems_come_first_each_with_its_fix_and_without_secrets(tmp_path: Path) -> None:
    servers = {"lost": {"command": "no-such-program"}}
    (tmp_path / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))
    async with TelegramServer() as telegram, FakeModelServer() as model:
        model.reply(*[ModelReply(status=401)] * 2)
        channels = {
            "slack": {"enabled": True, "bot_token": "xoxb-1-literal"},
            "telegram": {
                "enabled": True,
                "base_url": telegram.base_url,
                "base_file_url": telegram.base_file_url,
                "bot_token": "1:revoked",
            },
        }
        entry = {
            "name": "gpt",
            "use": "langchain_openai:ChatOpenAI",
            "model": "gpt",
            "api_key": "k",
            "base_url": model.base_url,
        }
        config = {"channels": channels, "models": [entry], "modles": []}
        async with composed(tmp_path, json.dumps(config)) as service:
            await received(service, message(1, "hello"))
            failures = service.services.agent_services.circuit_breakers.latest_failures
            await eventually(lambda: "gpt" in failures)
            bus = service.services.bus
            assert bus is not None
            await eventually(lambda: bus.health()["telegram"].state == "failed")
            report = await eventually(
                lambda: findings(service, "?again=true"),
                lambda found: (
                    ("MCP servers", "lost") in by_subject(found)
                    and by_subject(found)["MCP servers", "lost"]["severity"] == "problem"
                ),
                every_s=2.1,
            )
    severities = [one["severity"] for one in report["findings"]]
    order = ["problem", "warning", "note", "ok"]
    assert severities == sorted(severities, key=order.index)
    assert report["severity"] == "problem"
    found = by_subject(report)
    assert all(one["fix"] for one in found.values() if one["severity"] == "problem")
    assert "auth" in found["models", "gpt"]["text"]
    assert "api_key" in found["models", "gpt"]["fix"]
    for channel, words in (("slack", "app_token"), ("telegram", "BotFather")):
        asked = [one for (area, _), one in found.items() if area == channel]
        assert any(words in f"{one['text']} {one['fix']}" for one in asked), asked
    assert "modles" in found["this machine", "configuration"]["text"]
    assert "1:revoked" not in json.dumps(report)


async def test_the_checks_run_once_for_many_pages_and_again_on_request(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        seen: list[str] = []

        async def look() -> None:
            seen.append((await findings(service))["looked_at"])

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(look)
        assert len(set(seen)) == 1
        again = await eventually(
            lambda: findings(service, "?again=true"),
            lambda found: found["looked_at"] != seen[0],
        )
        await look()
        assert seen[-1] == again["looked_at"]
        assert (await service.stranger.get("/api/findings")).status_code == 401


async def test_figures_follow_messages_and_name_what_waits(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for number in range(3):
            await received(service, message(number, "hello", f"c{number}"))

        async def figures(span: str) -> dict[str, Any]:
            answer: dict[str, Any] = (await service.client.get(f"/api/figures?span={span}")).json()
            return answer

        found: dict[str, Any] = {}
        for span, periods in (("hour", 30), ("day", 24), ("week", 28)):
            found = await eventually(
                lambda span=span: figures(span),  # type: ignore[misc]
                lambda found: found["total"]["answers"] == 3,
            )
            assert len(found["periods"]) == periods
            assert sum(one["messages"] for one in found["periods"]) == 3
        assert found["total"]["errors"] == 0
        assert (
            found["total"]["answer_p50_s"] is None
        )  # No terminal is attached, so nothing is delivered.
        assert found["now"]["pending"] > 0
        assert (await service.client.get("/api/figures?span=year")).status_code == 422


async def test_a_period_that_is_over_is_read_again_ever_more_rarely(tmp_path: Path) -> None:
    now, read = [10 * 3600.0 + 30], list[float]()

    class CountingStore(FigureStore):
        @override
        async def read(self, since: float, until: float) -> PeriodFigures:
            read.append(since)
            return await super().read(since, until)

    async with composed(tmp_path) as service:
        database: Database = service.services.database
        figures = Figures(CountingStore(database), now=lambda: now[0])
        await figures.read("hour")
        assert len(read) == 30
        read.clear()
        now[0] += 60.0
        await figures.read("hour")
        # The current period, and those that ended less than a minute ago.
        assert read == [10 * 3600.0 - 120, 10 * 3600.0]
