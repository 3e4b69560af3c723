"""GET /api/logs: the last log lines, with filters and pages, without secrets."""

import json
import logging
from pathlib import Path
from typing import Any

from gateway.logs import configure_logging
from gateway.recent_logs import LogFilter, RecentLogs, keep_recent_logs
from tests.gateway.composed import ComposedService, composed

log = logging.getLogger("gateway.example")


async def rows(service: ComposedService, query: str = "") -> list[dict[str, Any]]:
    response = await service.client.get(f"/api/logs{query}")
    assert response.status_code == 200, response.text
    return list(response.json()["rows"])


async def test_lines_are_filtered_and_paged(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for number in range(5):
            log.warning("tides number %d", number)
        log.error("it <b>broke</b>")
        found = await rows(service, "?logger=gateway.example")
        assert [row["message"] for row in found][:2] == ["it <b>broke</b>", "tides number 4"]
        assert [
            row["level"] for row in await rows(service, "?logger=gateway.example&level=error")
        ] == ["error"]
        assert len(await rows(service, "?q=TIDES+number+3")) == 1
        assert await rows(service, "?logger=gateway.example&since=2999-01-01T00:00:00Z") == []
        assert (
            len(await rows(service, f"?logger=gateway.example&since={found[1]['time'][:23]}Z")) >= 2
        )
        page = (await service.client.get("/api/logs?q=tides&limit=2")).json()
        older = await rows(service, f"?q=tides&before={page['next']}")
        assert [row["message"][-1] for row in (*page["rows"], *older)] == list("43210")
        assert len(await rows(service, "?q=tides&since=PT5M")) == 5
        assert (await service.client.get("/api/logs?level=loud")).status_code == 422


async def test_half_a_surrogate_pair_in_a_line_hides_no_other_line(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        log.warning("tides: %s", "a\ud800b")
        log.error("tides fail", exc_info=ValueError("c\udfffd"))
        broken, named = await rows(service, "?q=tides")
        assert (named["message"], "c\ufffdd" in broken["error"]) == ("tides: a\ufffdb", True)
        text = (await service.client.get("/api/logs?q=tides&format=jsonl")).text
        assert [json.loads(line)["message"] for line in text.splitlines()] == [
            "tides: a\ufffdb",
            "tides fail",
        ]


async def test_lines_of_a_request_are_found_by_its_id(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        headers = {"X-Request-Id": "find-me"}
        wrong = await service.stranger.get(
            "/api/channels", headers={**headers, "X-Api-Key": "wrong"}
        )
        assert wrong.status_code == 401
        (line,) = await rows(service, "?request_id=find-me")
        assert "wrong admin token" in line["message"]
        assert line["context"]["request"] == "find-me"
        assert await rows(service, "?request_id=find") == []
        assert await rows(service, "?thread_id=find-me") == []


async def test_secrets_are_redacted_in_lines_tracebacks_and_downloads(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        configure_logging("info", "json", secrets=["hush-hush"])
        with keep_recent_logs() as recent:
            error = ValueError("hush-hush in an error")
            log.error("got %s", "hush-hush", exc_info=error)
            configure_logging("info", "json", secrets=["later-secret"])
            log.warning("later-secret and xoxb-123456789-abcdef")
            later, first = recent.list_recent(LogFilter(logger="gateway.example"))
    finally:
        root.handlers[:] = before
    assert first.message == "got ***"
    assert "ValueError: *** in an error" in first.error
    assert later.message == "*** and ***"


async def test_the_lines_are_downloaded_oldest_first(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        log.warning("one\nof two lines")
        log.warning("two")
        response = await service.client.get("/api/logs?format=jsonl&logger=gateway.example")
        assert "attachment" in response.headers["content-disposition"]
        lines = [json.loads(line) for line in response.text.splitlines()]
        assert [line["message"] for line in lines] == ["one\nof two lines", "two"]


def test_memory_is_bounded() -> None:
    recent = RecentLogs(max_chars=10_000)
    for number in range(200):
        record = logging.LogRecord(
            "a", logging.INFO, "", 0, "%s", (f"{number} " + "x" * 9000,), None
        )
        recent.emit(record)
    lines = recent.list_recent(LogFilter())
    assert len(lines) == 2
    assert lines[0].message.startswith("199 ")
    assert max(len(line.message) for line in lines) == 4000
