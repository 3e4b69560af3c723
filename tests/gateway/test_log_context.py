"""Log lines contain their context, from the platform's message to the run."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from gateway.logs import ConsoleLogFormatter, JsonLogFormatter, SecretRedactor
from tests.eventually import eventually
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import ComposedService, composed


class RecordingLogHandler(logging.Handler):
    """Records every line as the service would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.json: list[dict[str, Any]] = []
        self.text: list[str] = []
        self._forms = JsonLogFormatter(SecretRedactor([])), ConsoleLogFormatter(SecretRedactor([]))

    @override
    def emit(self, record: logging.LogRecord) -> None:
        as_json, as_text = self._forms
        self.json.append(json.loads(as_json.format(record)))
        self.text.append(as_text.format(record))

    def told(self, words: str) -> list[dict[str, Any]]:
        return [line for line in self.json if words in line["message"]]


@pytest.fixture
def lines() -> Iterator[RecordingLogHandler]:
    handler, source = RecordingLogHandler(), logging.getLogger("gateway.runtime.execution")
    # Attached to this logger only, so that other loggers keep their settings.
    level = source.level
    source.setLevel(logging.WARNING)
    source.addHandler(handler)
    yield handler
    source.removeHandler(handler)
    source.setLevel(level)


async def said(service: ComposedService, session: str) -> dict[str, Any]:
    """Send a message in a session and wait for the end of the turn. Return its row of the inbox."""
    terminal = service.services.terminal
    assert terminal is not None
    await terminal.say(session, "hello")

    async def row() -> dict[str, Any]:
        rows = (await service.client.get("/api/channels/inbox")).json()["rows"]
        return next(one for one in rows if one["chat"] == session)

    return await eventually(row, lambda one: one["state"] in ("done", "dead"))


async def test_a_run_that_fails_is_found_by_its_conversation(
    tmp_path: Path, lines: RecordingLogHandler
) -> None:
    model = ScriptedChatModel.playing(RuntimeError("one"), RuntimeError("two"))
    with registered(model) as keys:
        async with composed(tmp_path, json.dumps({"models": [keys]})) as service:
            rows = [await said(service, session) for session in ("s1", "s2")]
            listed = (await service.client.get("/api/channels/conversations")).json()["rows"]
    numbers = {one["chat"]: str(one["id"]) for one in listed}
    failures = lines.told("failed with RuntimeError")
    assert len(failures) == 2
    for row, failure in zip(rows, failures, strict=True):
        assert failure["channel"] == "terminal"
        assert failure["conversation"] == numbers[row["chat"]]
        assert (failure["thread"], failure["run"]) == (row["thread_id"], row["run_id"])
    text = next(line for line in lines.text if "Run " in line and rows[0]["run_id"] in line)
    assert f"(channel terminal, conversation {numbers['s1']}, thread {rows[0]['thread_id']}" in text


async def test_a_run_over_the_network_is_found_by_its_request(
    tmp_path: Path, lines: RecordingLogHandler
) -> None:
    with registered(ScriptedChatModel.playing(RuntimeError("no"))) as keys:
        async with composed(tmp_path, json.dumps({"models": [keys]})) as service:
            body = {"assistant_id": "lead_agent", "input": {"messages": "hello"}}
            await service.client.post(
                "/api/runs/wait", json=body, headers={"X-Request-Id": "mine-1"}
            )
    (failure,) = lines.told("failed with RuntimeError")
    assert failure["request"] == "mine-1"
    assert failure["run"]
    assert "conversation" not in failure


async def test_the_lists_of_rows_have_pages(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for session in ("s1", "s2", "s3"):
            await said(service, session)
        get = service.client.get
        first = (await get("/api/channels/inbox", params={"limit": 2})).json()["rows"]
        asked = {"limit": 2, "before": first[-1]["id"]}
        second = (await get("/api/channels/inbox", params=asked)).json()["rows"]
        assert [row["chat"] for row in (*first, *second)] == ["s3", "s2", "s1"]
        owed = (await get("/api/channels/outbox", params={"before": 1})).json()["rows"]
        assert owed == []
        for wrong in ({"limit": 0}, {"limit": 1001}, {"before": 0}, {"before": "x"}):
            answer = await get("/api/channels/outbox", params=wrong)
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["loc"] == ["query", next(iter(wrong))]
