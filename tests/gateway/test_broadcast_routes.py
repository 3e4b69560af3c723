"""POST /api/channels/broadcast: rejected requests and skipped channels. Journeys test the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.composed import composed

ROUTE = "/api/channels/broadcast"
CONFIG = json.dumps({"channels": {"slack": {"enabled": True, "bot_token": "xoxb-1-literal"}}})


async def test_channels_that_are_not_connected_are_left_out_with_the_reason(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        sent = await service.client.post(ROUTE, json={"text": "x", "dry_run": True})
        [(name, slack)] = sent.json()["channels"].items()
        assert (name, slack["chats"]) == ("slack", 0)
        assert "failed: channels.slack.app_token is not set" in slack["left_out"]
        body = {"text": "x", "channels": ["telegram", "terminal", "telegram"]}
        sent = await service.client.post(ROUTE, json=body)
        assert {name: one["left_out"] for name, one in sent.json()["channels"].items()} == {
            "telegram": "The channel is disabled.",
            "terminal": "A terminal shows messages only while it is open.",
        }
        assert sent.json()["chats"] == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"text": " \n"}, 422),
        ({"text": "x" * 60_001}, 422),
        ({"text": "x", "audience": "everybody"}, 422),
        ({"text": "x", "channels": []}, 422),
        ({"text": "x", "active_within_days": 0}, 422),
        ({"text": "x", "key": "../x"}, 422),
        ({"text": "x", "channels": ["nowhere"]}, 404),
        ({"text": "x", "channels": ["\ud800"]}, 422),
        ({"text": "x", "channels": ["x" * 201]}, 422),
        ({"text": "x", "active_within_days": 10**400}, 422),
        ({"text": "x", "active_within_days": float("nan")}, 422),
    ],
)
async def test_invalid_broadcasts_are_refused(
    tmp_path: Path, body: dict[str, Any], status: int
) -> None:
    async with composed(tmp_path) as service:
        refused = await service.client.post(ROUTE, content=json.dumps(body))
        assert refused.status_code == status


async def test_a_key_is_for_one_request_and_is_in_the_audit_log(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        body = {"text": "secret words", "key": "tonight"}
        first, again = [await service.client.post(ROUTE, json=body) for _ in range(2)]
        assert (first.json()["is_repeat"], again.json()["is_repeat"]) == (False, True)
        other = await service.client.post(ROUTE, json={**body, "audience": "all"})
        assert (other.status_code, other.json()["detail"]) == (
            409,
            "Another broadcast has the key 'tonight'.",
        )
        [listed] = (await service.client.get(ROUTE)).json()["broadcasts"]
        assert (listed["key"], listed["chats"], listed["waiting"]) == ("tonight", 0, 0)
        assert (await service.client.get(f"{ROUTE}/tonight")).json() == listed
        assert (await service.client.get(f"{ROUTE}/never")).status_code == 404
        stopped = await service.client.delete(f"{ROUTE}/tonight")
        assert stopped.json()["message"] == "0 chats will not get it."
        assert (await service.client.delete(f"{ROUTE}/never")).status_code == 404
        assert (await service.stranger.post(ROUTE, json=body)).status_code == 401
    log = (tmp_path / "home" / "audit.log").read_text()
    details = [json.loads(line)["detail"] for line in log.splitlines()]
    assert details[:3] == ["broadcast tonight: 0 chats", "broadcast tonight: 0 chats, repeated", ""]
    assert "secret words" not in log


async def test_files_come_in_the_same_form_as_for_one_chat(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        fields = {"key": "files", "channels": ["slack", "telegram"], "active_within_days": "2"}
        report = ("files", ("report.csv", b"a,b\n1,2\n" * 2_000_000))
        sent = await service.client.post(ROUTE, data=fields, files=[report, report])
        assert (sent.status_code, list(sent.json()["channels"])) == (200, ["slack", "telegram"])
        again = await service.client.post(ROUTE, data=fields, files=[report, report])
        assert again.json()["is_repeat"] is True
        refused = await service.client.post(ROUTE, data=fields, files=[report])
        assert refused.status_code == 409
        for files, status in (
            ([("files", ("empty.csv", b""))], 422),
            ([("files", (None, b"no name"))], 400),
            ([("text", ("text.txt", b"a file"))], 422),
            ([("files", ("small.csv", b"1"))] * 11, 400),
        ):
            refused = await service.client.post(ROUTE, data={"text": "x"}, files=files)
            assert refused.status_code == status, refused.text
        counted = await service.client.post(ROUTE, json={"dry_run": True})
        assert counted.json()["key"] is None


async def test_only_a_token_that_may_change_something_sends(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for scope, status in (("read", 403), ("operator", 200), ("admin", 200)):
            made = await service.client.post("/api/tokens", json={"name": scope, "scope": scope})
            headers = {"X-Api-Key": made.json()["token"]}
            sent = await service.stranger.post(ROUTE, json={"text": "x"}, headers=headers)
            assert sent.status_code == status
