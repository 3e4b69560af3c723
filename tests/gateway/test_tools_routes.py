"""Tools over REST: their providers and costs, and calls of MCP servers' tools."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.fakes.mcp_many import many_tools
from tests.fakes.mcp_stdio import stdio_server
from tests.gateway.composed import ComposedService, composed

CONFIG = """
models: [{name: m, use: "agent.models.demo:DemoChatModel", model: demo}]
tools: [{name: web_search, group: net, use: "agent.tools.web:ddgs_search"}]
"""


def hotel() -> dict[str, object]:
    return stdio_server("mcp_interactive", "stdio")


@asynccontextmanager
async def with_servers(folder: Path, **servers: object) -> AsyncIterator[ComposedService]:
    (folder / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))
    async with composed(folder, CONFIG) as service:
        yield service


async def tools(service: ComposedService) -> dict[str, Any]:
    answer = await service.client.get("/api/tools")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()["tools"]}


async def call(service: ComposedService, tool: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
    answer = await service.client.post(f"/api/mcp/tools/{tool}/call", json={"arguments": arguments})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_tool_shows_who_provides_it_and_what_it_costs(tmp_path: Path) -> None:
    async with with_servers(tmp_path, hotel=hotel()) as service:
        found = await tools(service)
        assert (found["hotel_book"]["source"], found["hotel_book"]["server"]) == ("mcp", "hotel")
        assert (found["web_search"]["source"], found["web_search"]["group"]) == ("web", "net")
        assert {"ls", "task", "write_todos", "schedule", "recall"} <= set(found)
        assert {found[name]["source"] for name in ("ls", "task", "write_todos")} == {"built-in"}
        assert all(one["tokens"] > 10 and not one["deferred"] for one in found.values())


async def test_too_many_tools_are_deferred(tmp_path: Path) -> None:
    async with with_servers(tmp_path, many=many_tools(60)) as service:
        found = await tools(service)
        deferred = [name for name, one in found.items() if one["deferred"]]
        assert len(deferred) >= 60
        assert all(name.startswith("many_") or name == "web_search" for name in deferred)
        assert not found["tool_search"]["deferred"]


async def test_a_tool_is_called_without_a_conversation(tmp_path: Path) -> None:
    async with with_servers(tmp_path, hotel=hotel()) as service:
        linked = await call(service, "hotel_link")
        assert (linked["is_error"], "REPORT" in linked["text"].upper()) == (False, True)
        # It asks a person, and nobody is there.
        booked = await call(service, "hotel_book", day="Monday")
        assert booked["text"] == "not booked: decline"
        wrong = await call(service, "hotel_book", days="Monday")
        assert wrong["is_error"]
        for name in ("ls", "hotel_nothing"):
            answer = await service.client.post(f"/api/mcp/tools/{name}/call", json={})
            assert answer.status_code == 404
        assert "tool hotel_link: success" in service.services.config.audit_file.read_text()


async def test_one_server_is_added_changed_and_removed(tmp_path: Path) -> None:
    async with with_servers(tmp_path) as service:
        path = "/api/mcp/config/hotel"
        made = await service.client.put(path, json={**hotel(), "env": {"KEY": "hush-hush"}})
        assert made.status_code == 400  # Python is not among the commands that the API may start.
        web = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "hush-hush"}}
        made = await service.client.put(path, json=web)
        assert made.json()["headers"] == {"X-Key": "***"}
        changed = await service.client.put(path, json={**made.json(), "description": "Rooms"})
        assert changed.json()["description"] == "Rooms"
        stored = json.loads((tmp_path / "extensions_config.json").read_text())["mcpServers"]
        assert stored["hotel"]["headers"] == {"X-Key": "hush-hush"}

        async def has_failed() -> bool:
            status = (await service.client.get("/api/mcp/status")).json()["servers"]["hotel"]
            return bool(status["state"] == "failed" and status["error"])

        await eventually(has_failed)
        assert (await service.client.delete(path)).status_code == 204
        assert (await service.client.delete(path)).status_code == 404
        assert (await service.client.get("/api/mcp/config")).json() == {"mcp_servers": {}}
