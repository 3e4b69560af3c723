"""Memory over HTTP."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.memory.scope import MemoryScope
from gateway.config_file import ConfigError
from tests.gateway.composed import composed

ANN = {"scope": "person:slack:T1:U%3A1"}
ROOM = {"scope": "room:telegram:1:-100"}


def contents(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [fact["content"] for fact in answer.json()["facts"]]


async def test_facts_are_added_changed_and_removed_in_their_scope_alone(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        client = service.client
        made = await client.post("/api/memory/facts", params=ANN, json={"content": "likes tea"})
        (fact,) = made.json()["facts"]
        assert (fact["category"], fact["confidence"], fact["source"]) == ("context", 0.5, "manual")
        assert "sourceError" not in fact
        path = f"/api/memory/facts/{fact['id']}"
        for elsewhere in ({}, ROOM, {**ANN, "agent": "writer"}):
            assert contents(await client.get("/api/memory", params=elsewhere)) == []
            assert (await client.delete(path, params=elsewhere)).status_code == 404
        changed = await client.patch(path, params=ANN, json={"confidence": 1, "content": None})
        assert changed.json()["facts"][0] == {**fact, "confidence": 1.0}
        listed = (await client.get("/api/memory/scopes")).json()["scopes"]
        assert [(one["scope"], one["facts"]) for one in listed] == [(ANN["scope"], 1)]
        assert contents(await client.delete(path, params=ANN)) == []
        assert (await client.patch(path, params=ANN, json={})).status_code == 404


async def test_a_document_is_exported_and_imported(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "user": {"workContext": {"summary": "Builds ships", "updatedAt": "2026-03-01T12:00:00Z"}},
        "facts": [
            {
                "id": "fact_1",
                "number": 1,
                "content": "喜欢茶",
                "confidence": 0.9,
                "sourceError": "coffee",
            }
        ],
    }
    async with composed(tmp_path) as service:
        client = service.client
        imported = await client.post("/api/memory/import", params=ANN, json=given)
        exported = await client.get("/api/memory/export", params=ANN)
        assert imported.json() == exported.json()
        assert exported.json()["user"]["workContext"]["summary"] == "Builds ships"
        assert exported.json()["facts"][0]["sourceError"] == "coffee"
        moved = await client.post("/api/memory/import", params=ROOM, json=exported.json())
        assert moved.json()["facts"] == exported.json()["facts"]
        again = await client.post("/api/memory/reload", params=ROOM)
        assert again.json() == moved.json()
        assert contents(await client.delete("/api/memory", params=ANN)) == []
        assert contents(await client.get("/api/memory", params=ROOM)) == ["喜欢茶"]


async def test_the_configuration_and_status_of_memory_are_returned(tmp_path: Path) -> None:
    async with composed(tmp_path, "memory: {max_facts: 20, model_name: null}") as service:
        config = (await service.client.get("/api/memory/config")).json()
        assert config == {
            "enabled": True,
            "storage_path": "",
            "debounce_seconds": 30,
            "max_calls_per_hour": 20,
            "max_facts": 20,
            "fact_confidence_threshold": 0.7,
            "injection_enabled": True,
            "max_injection_tokens": 2000,
        }
        status = (await service.client.get("/api/memory/status", params=ANN)).json()
        document = (await service.client.get("/api/memory", params=ANN)).json()
        assert status == {"config": config, "data": document}


FACT = "/api/memory/facts"


BAD_REQUESTS: list[tuple[str, str, str, int]] = [
    ("POST", FACT, '{"content": ""}', 400),
    ("POST", FACT, '{"content": " \\u0000 "}', 400),
    ("POST", FACT, '{"content": "\\ud800", "category": "gossip"}', 400),
    ("POST", FACT, '{"content": "x", "confidence": 1.5}', 400),
    ("POST", FACT, '{"content": "x", "confidence": NaN}', 400),
    ("POST", FACT, '{"content": 5}', 422),
    ("POST", FACT, "[]", 422),
    ("POST", "/api/memory/import", '{"facts": {}}', 422),
    ("POST", "/api/memory/import", "{}", 400),
    ("POST", "/api/memory/import", '{"facts": [{"content": "x", "confidence": NaN}]}', 200),
    ("PATCH", f"{FACT}/none", '{"content": "x"}', 404),
    ("DELETE", f"{FACT}/none", "", 404),
    ("DELETE", f"{FACT}/..%2f..%2fx", "", 404),
    ("GET", f"/api/memory?scope={'x' * 513}", "", 400),
    ("GET", "/api/memory?scope=a%00b", "", 400),
    ("GET", "/api/memory?agent=../../etc", "", 400),
    ("GET", "/api/memory?scope=../../etc", "", 200),
    ("DELETE", "/api/memory?scope=/&agent=x", "", 200),
]


async def test_bad_requests_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for method, path, body, status in BAD_REQUESTS:
            answer = await service.client.request(
                method, path, content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == status, (path, body, answer.text)
            assert str(tmp_path) not in answer.text
            assert "detail" in answer.json() or status == 200


async def test_a_broken_file_is_kept_and_a_failed_write_is_reported(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await service.client.post(FACT, json={"content": "x"})
        folder = tmp_path / "home" / "memory" / MemoryScope().folder
        (folder / "memory.json").write_text("{")
        assert contents(await service.client.get("/api/memory")) == []
        assert len(list(folder.glob("*.unreadable"))) == 1
        (folder / "memory.json").mkdir()
        answer = await service.client.get("/api/memory")
        assert answer.status_code == 500
        assert str(tmp_path) not in answer.text


async def test_memory_needs_the_token(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for method, path in (("GET", "/api/memory"), ("DELETE", "/api/memory"), ("POST", FACT)):
            body = json.dumps({"content": "x"}) if method == "POST" else None
            answer = await service.stranger.request(method, path, content=body)
            assert answer.status_code == 401


async def test_the_configuration_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory.model_name: there is no model named 'none'"):
        async with composed(tmp_path, "memory: {model_name: none}"):
            pass
