"""The embedded client and the HTTP API give the same results. Also tests a client from a configuration file."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agent.client import AsyncParleyClient, ParleyClient
from agent.client.options import TurnSettings
from agent.client.threads import StoredThreadIndex
from agent.errors import (
    AgentError,
    AgentExists,
    AgentInvalid,
    AgentNotFound,
    FactNotFound,
    McpServerNotFound,
    McpSettingsInvalid,
    MemoryInvalid,
    SkillExists,
    SkillNotFound,
)
from gateway.config_file import ConfigError
from gateway.configured_client import client_from, open_client_from
from gateway.routes import agents, mcp, memory, skills, suggestions, uploads
from store.threads import ThreadStore
from tests.agent.test_skill_installer import MD, packed
from tests.agent.test_skills import put
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import ComposedService, composed

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "embed.md").read_text("utf-8")
THREAD = "11111111-2222-4333-8444-555555555555"
SERVER: dict[str, Any] = {
    "command": "npx",
    "args": ["-y", "@example/server"],
    "env": {"TOKEN": "secret-value"},
    "enabled": False,
}
REMOTE: dict[str, Any] = {
    "type": "http",
    "url": "https://mcp.example.org/?key=secret-value",
    "headers": {"X-Key": "secret-value"},
    "enabled": False,
    "oauth": {
        "token_url": "https://auth.example.org/token",
        "client_id": "parley",
        "client_secret": "secret-value",
        "extra_token_params": {"resource": "all"},
    },
}
MEMORY = {
    "user": {"workContext": {"summary": "Builds ships", "updatedAt": "2026-03-01T12:00:00Z"}},
    "facts": [{"id": "fact_1", "content": "likes tea", "sourceError": "coffee"}],
}


@dataclass(frozen=True, slots=True)
class BothApis:
    """One agent, reached through both APIs."""

    service: ComposedService
    client: AsyncParleyClient

    async def http(self, method: str, path: str, **request: Any) -> Any:  # noqa: ANN401 - JSON
        """Return an answer of the HTTP API."""
        answer = await self.service.client.request(method, f"/api{path}", **request)
        assert answer.status_code < 300, answer.text
        return answer.json()


@asynccontextmanager
async def both(folder: Path, text: str = "skills: {scan: none}") -> AsyncIterator[BothApis]:
    async with composed(folder, text) as service:
        parts = service.services
        book = StoredThreadIndex(ThreadStore(parts.database), parts.runs.checkpointer)
        client = AsyncParleyClient(parts.agents, parts.runs.checkpointer, book, TurnSettings())
        yield BothApis(service, client)


def parsed(kind: type[BaseModel], view: object) -> None:
    """Validate a method's answer with its route's model: it must have every field and no others."""
    understood = kind.model_validate(view)
    assert understood.model_dump(mode="json", exclude_unset=True) == view
    assert json.loads(json.dumps(view)) == view


async def test_models(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        assert await agent.client.list_models() == await agent.http("GET", "/models")
        assert await agent.client.get_model("demo") == await agent.http("GET", "/models/demo")
        assert await agent.client.get_model("nobody") is None


async def test_suggestions(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Tea?"}]
    with registered(ScriptedChatModel.playing('["Why?", "How?"]', '["Why?", "How?"]')) as keys:
        text = json.dumps({"models": [keys]})
        async with both(tmp_path, text) as agent:
            path = f"/threads/{THREAD}/suggestions"
            found = await agent.client.suggest(said, n=1)
            assert found == {"suggestions": ["Why?"]}
            assert found == await agent.http("POST", path, json={"messages": said, "n": 1})
    parsed(suggestions.SuggestionsResponse, found)


async def test_skills(tmp_path: Path) -> None:
    put(tmp_path / "skills" / "public" / "prose", "prose", "license: MIT")
    put(tmp_path / "home" / "skills" / "custom" / "bad", "Not A Name")
    async with both(tmp_path) as agent:
        listed = await agent.client.list_skills()
        parsed(skills.SkillList, listed)
        assert listed == await agent.http("GET", "/skills")
        assert [one["name"] for one in listed["skills"]] == ["bad", "prose"]
        enabled = await agent.client.list_skills(enabled_only=True)
        assert [one["name"] for one in enabled["skills"]] == ["prose"]
        off = await agent.client.update_skill("prose", enabled=False)
        parsed(skills.SkillView, off)
        assert off["enabled"] is False
        read = await agent.client.get_skill("prose")
        assert read is not None
        parsed(skills.SkillDetail, read)
        assert read == await agent.http("GET", "/skills/prose")
        assert read == {**off, "content": read["content"]}
        assert await agent.client.get_skill("nobody") is None
        with pytest.raises(ValueError, match="nobody"):
            await agent.client.update_skill("nobody", enabled=True)


async def test_custom_skills(tmp_path: Path) -> None:
    file = tmp_path / "poems.skill"
    file.write_bytes(packed(("poems/SKILL.md", MD)).getvalue())
    async with both(tmp_path) as agent:
        client = agent.client
        installed = await client.install_skill(file)
        parsed(skills.SkillInstallResponse, installed)
        assert installed["skill_name"] == "poems"
        with pytest.raises(SkillExists):
            await client.install_skill(file)
        with pytest.raises(FileNotFoundError):
            await client.install_skill(tmp_path / "none.skill")
        with pytest.raises(ValueError, match="not a file"):
            await client.install_skill(tmp_path)
        assert await client.list_custom_skills() == await agent.http("GET", "/skills/custom")
        text = await client.get_custom_skill("poems")
        parsed(skills.SkillDetail, text)
        assert text == await agent.http("GET", "/skills/custom/poems")
        changed = await client.update_custom_skill("poems", f"{MD}\nMore.")
        assert changed["content"].endswith("More.")
        history = await client.get_custom_skill_history("poems")
        parsed(skills.SkillHistoryView, history)
        assert history == await agent.http("GET", "/skills/custom/poems/history")
        assert await client.rollback_custom_skill("poems", -1) == text
        assert await client.delete_custom_skill("poems") == {"success": True}
        with pytest.raises(SkillNotFound):
            await client.get_custom_skill("poems")


async def test_mcp_servers(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        client = agent.client
        assert await client.get_mcp_config() == {"mcp_servers": {}}
        written = await client.update_mcp_config({"one": SERVER})
        parsed(mcp.McpConfigView, written)
        assert written["mcp_servers"]["one"]["env"] == {"TOKEN": "***"}
        assert written == await agent.http("GET", "/mcp/config")
        # Clients can send shown values back: masks keep the stored values.
        assert await client.update_mcp_config(written["mcp_servers"]) == written
        stored = json.loads((tmp_path / "home" / "extensions_config.json").read_text())
        assert stored["mcpServers"]["one"]["env"] == {"TOKEN": "secret-value"}
        status = await client.get_mcp_status()
        parsed(mcp.McpStatusView, status)
        assert status == await agent.http("GET", "/mcp/status")
        assert status["servers"]["one"]["state"] == "disabled"
        switched = await client.switch_mcp_server("one", enabled=False)
        parsed(mcp.McpServerView, switched)
        assert switched == written["mcp_servers"]["one"]
        with pytest.raises(McpServerNotFound):
            await client.switch_mcp_server("two", enabled=True)


async def test_secrets_of_mcp_servers_are_kept_and_not_shown(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        written = await agent.client.update_mcp_config({"far": REMOTE})
        parsed(mcp.McpConfigView, written)
        assert "secret-value" not in json.dumps(written)
        assert await agent.client.update_mcp_config(written["mcp_servers"]) == written
        file = tmp_path / "home" / "extensions_config.json"
        stored = json.loads(file.read_text())["mcpServers"]["far"]
        assert stored["oauth"]["client_secret"] == "secret-value"
        assert stored["oauth"]["client_id"] == "parley"
        assert stored["headers"] == REMOTE["headers"]


@pytest.mark.parametrize(
    "server",
    [
        {**SERVER, "command": "/bin/sh"},
        {**SERVER, "env": {"OTHER": "***"}},
        {**SERVER, "env": ["TOKEN"]},
        {**SERVER, "args": 7},
        {"type": "http"},
        {"type": "http", "url": "https://example.org", "oauth": {"extra_token_params": "x"}},
        "npx",
    ],
)
async def test_bad_mcp_servers_are_refused(tmp_path: Path, server: Any) -> None:  # noqa: ANN401
    async with both(tmp_path) as agent:
        with pytest.raises(McpSettingsInvalid):
            await agent.client.update_mcp_config({"one": server})
        assert await agent.client.get_mcp_config() == {"mcp_servers": {}}


async def test_memory(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        client = agent.client
        empty = await client.get_memory()
        parsed(memory.MemoryDocumentView, empty)
        assert empty == await agent.http("GET", "/memory")
        imported = await client.import_memory(MEMORY)
        assert imported == await agent.http("GET", "/memory/export")
        assert imported == await client.export_memory() == await client.reload_memory()
        made = await client.create_memory_fact("rows on Sundays", "preference", 0.9)
        assert made == await agent.http("GET", "/memory")
        fact = made["facts"][-1]
        assert (fact["content"], fact["category"], fact["confidence"]) == (
            "rows on Sundays",
            "preference",
            0.9,
        )
        changed = await client.update_memory_fact(fact["id"], confidence=1)
        assert changed["facts"][-1] == {**fact, "confidence": 1.0}
        left = await client.delete_memory_fact(fact["id"])
        assert [one["id"] for one in left["facts"]] == ["fact_1"]
        status = await client.get_memory_status()
        parsed(memory.MemoryStatusView, status)
        assert status == await agent.http("GET", "/memory/status")
        settings = await client.get_memory_config()
        parsed(memory.MemoryConfigView, settings)
        assert settings == await agent.http("GET", "/memory/config")
        cleared = await client.clear_memory()
        assert (cleared["facts"], cleared["user"]) == ([], empty["user"])


async def test_memory_of_others(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        client, scope = agent.client, "person:slack:T1:U1"
        await client.create_memory_fact("likes tea", scope=scope, agent="writer")
        assert (await client.get_memory())["facts"] == []
        there = await client.get_memory(scope=scope, agent="writer")
        asked = {"scope": scope, "agent": "writer"}
        assert there == await agent.http("GET", "/memory", params=asked)
        scopes = await client.list_memory_scopes()
        parsed(memory.MemoryScopeList, scopes)
        assert scopes == await agent.http("GET", "/memory/scopes")
        for refused, error in (
            (client.create_memory_fact(""), MemoryInvalid),
            (client.create_memory_fact("x", "gossip"), MemoryInvalid),
            (client.create_memory_fact("x", confidence=2), MemoryInvalid),
            (client.import_memory({"facts": "nobody"}), MemoryInvalid),
            (client.get_memory(scope="\n"), MemoryInvalid),
            (client.update_memory_fact("fact_9", "x"), FactNotFound),
            (client.delete_memory_fact("fact_9"), FactNotFound),
        ):
            with pytest.raises(error):
                await refused


async def test_uploads_and_artifacts(tmp_path: Path) -> None:
    first, second = tmp_path / "notes one.txt", tmp_path / "sub" / "notes one.txt"
    page = tmp_path / "page.html"
    second.parent.mkdir()
    for file in (first, second, page):
        file.write_text(f"of {file.parent.name}")
    async with both(tmp_path) as agent:
        client = agent.client
        answer = await client.upload_files(THREAD, [first, second, str(page)])
        parsed(uploads.UploadResponse, answer)
        assert answer["success"] is True
        assert [one["filename"] for one in answer["files"]] == [
            "notes one.txt",
            "notes one_1.txt",
            "page.html",
        ]
        listed = await client.list_uploads(THREAD)
        parsed(uploads.UploadList, listed)
        assert listed == await agent.http("GET", f"/threads/{THREAD}/uploads/list")
        limits = await client.get_upload_limits()
        parsed(uploads.UploadLimitsView, limits)
        assert limits == await agent.http("GET", f"/threads/{THREAD}/uploads/limits")
        over_http = await agent.service.client.get(answer["files"][1]["artifact_url"])
        content, mime = await client.get_artifact(THREAD, answer["files"][1]["virtual_path"])
        assert (content, mime) == (over_http.content, "text/plain")
        assert await client.get_artifact(THREAD, "mnt/user-data/uploads/page.html") == (
            page.read_bytes(),
            "text/html",
        )
        done = await client.delete_upload(THREAD, "page.html")
        parsed(uploads.UploadDeleteResponse, done)
        assert (await client.list_uploads(THREAD))["count"] == 2


async def test_uploads_say_the_same_over_http(tmp_path: Path) -> None:
    document = tmp_path / "broken.docx"
    document.write_bytes(b"not a document")
    async with both(tmp_path) as agent:
        path = f"/threads/{THREAD}/uploads"
        sent = await agent.http(
            "POST", path, files={"files": ("broken.docx", document.read_bytes())}
        )
        assert await agent.client.upload_files(THREAD, [document]) == sent
        assert "markdown_error" in sent["files"][0]


async def test_parts_of_archives(tmp_path: Path) -> None:
    file = tmp_path / "poems.skill"
    file.write_bytes(packed(("poems/SKILL.md", MD)).getvalue())
    async with both(tmp_path) as agent:
        await agent.client.upload_files(THREAD, [file])
        path = "mnt/user-data/uploads/poems.skill/SKILL.md"
        assert await agent.client.get_artifact(THREAD, path) == (MD.encode(), "text/markdown")


async def test_custom_agents(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        client = agent.client
        made = await client.create_agent("Reviewer", description="Reviews", soul="Be strict.")
        parsed(agents.AgentView, made)
        assert made["name"] == "reviewer"
        assert made == await agent.http("GET", "/agents/reviewer")
        assert made == await client.get_agent("REVIEWER")
        assert await client.get_agent("nobody") is None
        changed = await client.update_agent("reviewer", model="demo", skills=[])
        assert changed == {**made, "model": "demo", "skills": []}
        listed = await client.list_agents()
        parsed(agents.AgentList, listed)
        assert listed == await agent.http("GET", "/agents")
        free = await client.check_agent_name("Reviewer")
        parsed(agents.AgentNameCheck, free)
        assert free == await agent.http("GET", "/agents/check", params={"name": "Reviewer"})
        profile = await client.update_user_profile("We build ships.")
        parsed(agents.UserProfile, profile)
        assert profile == await client.get_user_profile()
        assert profile == await agent.http("GET", "/user-profile")
        refusals: list[tuple[Callable[[], Awaitable[object]], type[AgentError]]] = [
            (lambda: client.create_agent("reviewer"), AgentExists),
            (lambda: client.create_agent("../x"), AgentInvalid),
            (lambda: client.create_agent("a", model="gpt-9"), AgentInvalid),
            (lambda: client.update_agent("reviewer", tool_groups=["nobody"]), AgentInvalid),
            (lambda: client.create_agent("a", soul="x" * 20_001), AgentInvalid),
            (lambda: client.update_agent("nobody", soul="x"), AgentNotFound),
            (lambda: client.delete_agent("nobody"), AgentNotFound),
        ]
        for refused, error in refusals:
            with pytest.raises(error):
                await refused()
        await client.delete_agent("reviewer")
        assert await client.list_agents() == {"agents": []}


async def test_a_thread_of_the_client_is_one_of_the_service(tmp_path: Path) -> None:
    async with both(tmp_path) as agent:
        assert (await agent.client.chat("good morning", THREAD)).startswith("You said")
        (row,) = (await agent.client.list_threads())["thread_list"]
        (found,) = await agent.http("POST", "/threads/search", json={})
        assert (found["thread_id"], found["status"]) == (THREAD, "idle")
        assert (row["created_at"], row["updated_at"]) == (found["created_at"], found["updated_at"])
        state = await agent.http("GET", f"/threads/{THREAD}/state")
        assert state["checkpoint_id"] == row["latest_checkpoint_id"]
        assert state["values"]["title"] == row["title"]
        newest = (await agent.client.get_thread(THREAD))["checkpoints"][-1]
        assert newest["values"]["messages"] == state["values"]["messages"]
        events = [event async for event in agent.client.stream("and now?", THREAD)]
        again = await agent.http("GET", f"/threads/{THREAD}/state")
        assert events[-2].data["messages"] == again["values"]["messages"]
        await agent.client.delete_thread(THREAD)
        gone = await agent.service.client.get(f"/api/threads/{THREAD}")
        assert gone.status_code == 404


async def test_the_client_and_the_service_return_the_same(tmp_path: Path) -> None:
    asked = {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"role": "user", "content": "make a file"}]},
    }
    async with both(tmp_path) as agent:
        told = await agent.http("POST", "/runs/wait", json=asked)
        events = [event async for event in agent.client.stream("make a file")]
    over_http = [(one["type"], one["content"]) for one in told["messages"]]
    state = events[-2].data
    assert [(one["type"], one["content"]) for one in state["messages"]] == over_http
    assert state["artifacts"] == told["artifacts"]
    assert state["title"] == told["title"]


# --- from a file -----------------------------------------------------------------------------------------------


def written(folder: Path, model: dict[str, str]) -> Path:
    """Write a configuration and every file that may be next to it."""
    model = {**model, "name": "$NAMED"}
    text = {"models": [model], "skills": {"path": "mine"}, "memory": {"enabled": False}}
    (folder / "config.yaml").write_text(json.dumps(text))
    (folder / ".env").write_text("NAMED=chosen\n")
    (folder / "extensions_config.json").write_text('{"skills": {"prose": {"enabled": false}}}')
    put(folder / "mine" / "public" / "prose", "prose")
    return folder / "config.yaml"


def test_a_client_from_a_configuration_file(tmp_path: Path) -> None:
    environ = {"PARLEY_HOME": str(tmp_path / "home")}
    with registered(ScriptedChatModel.playing("Good day.", "Good night.")) as keys:
        file = written(tmp_path, keys)
        with client_from(file, environ=dict(environ)) as client:
            assert client.list_models()["models"][0]["name"] == "chosen"
            assert [one["enabled"] for one in client.list_skills()["skills"]] == [False]
            assert client.chat("hi", THREAD) == "Good day."
        with client_from(file, environ=dict(environ), thinking_enabled=False) as client:
            assert client.list_threads()["thread_list"][0]["thread_id"] == THREAD
    assert (tmp_path / "home" / "checkpoints.db").is_file()


async def test_an_asynchronous_client_from_a_configuration_file(tmp_path: Path) -> None:
    with registered(ScriptedChatModel.playing("Good day.")) as keys:
        environ = {
            "PARLEY_HOME": str(tmp_path / "home"),
            "PARLEY_CONFIG": str(written(tmp_path, keys)),
        }
        async with open_client_from(environ=environ) as client:
            assert await client.chat("hi") == "Good day."


def test_a_configuration_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("models: 7")
    with pytest.raises(ConfigError):
        client_from(tmp_path / "config.yaml", environ={})
    with pytest.raises(ConfigError):
        client_from(tmp_path / "none.yaml", environ={})


# --- the documentation page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S))
def test_the_programs_in_the_page_run(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LANGSMITH_TRACING_V2", "false")
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))
    exec(compile(program, "embed.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - the page's own code
    assert "Parley" in capsys.readouterr().out or "Make a file" in program


def test_the_page_names_every_method() -> None:
    table = PAGE.partition("## Other methods")[2].partition("\n\nThree")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named | {"chat", "stream"} == {one for one in dir(ParleyClient) if one[0] != "_"}
