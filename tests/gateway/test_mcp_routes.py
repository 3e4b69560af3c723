"""MCP servers over REST: masking, merging, restrictions, enabling and disabling."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.mcp.redaction import redact_args, redact_url
from gateway.checks.configuration import find_config_problems
from gateway.config import load_config
from tests.gateway.composed import ComposedService, composed

SERVERS = {
    "github": {
        "enabled": False,
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "@x/server", "--api-key", "hush-hush-arg"],
        "env": {"TOKEN": "hush-hush-env", "OTHER": "$OTHER"},
        "timeout": 7,
    },
    "web": {
        "enabled": False,
        "type": "http",
        "url": "http://127.0.0.1:1/mcp?key=hush-hush-url",
        "headers": {"X-Key": "hush-hush-header"},
        "oauth": {
            "token_url": "http://127.0.0.1:1/token",
            "client_id": "me",
            "client_secret": "hush-hush-client",
            "refresh_token": "hush-hush-refresh",
            "extra_token_params": {"assertion": "hush-hush-extra"},
        },
    },
}
SKILLS = {"pdf": {"enabled": False}}


def written(folder: Path, servers: object = SERVERS) -> Path:
    file = folder / "extensions_config.json"
    document = {"mcpServers": servers, "skills": SKILLS, "note": "stays"}
    file.write_text(json.dumps(document))
    return file


def stored(file: Path) -> Any:  # noqa: ANN401 - JSON
    return json.loads(file.read_text())["mcpServers"]


async def shown(service: ComposedService) -> Any:  # noqa: ANN401 - JSON
    return (await service.client.get("/api/mcp/config")).json()


async def put(service: ComposedService, servers: object) -> Any:  # noqa: ANN401 - a response
    return await service.client.put("/api/mcp/config", json={"mcp_servers": servers})


async def test_secrets_are_not_shown(tmp_path: Path) -> None:
    written(tmp_path)
    async with composed(tmp_path) as service:
        assert (await service.stranger.get("/api/mcp/config")).status_code == 401
        answer = await service.client.get("/api/mcp/config")
        assert "hush-hush" not in answer.text
        servers = answer.json()["mcp_servers"]
        assert servers["github"] == {
            "enabled": False,
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "@x/server", "--api-key", "***"],
            "env": {"TOKEN": "***", "OTHER": "***"},
            "url": None,
            "headers": {},
            "oauth": None,
            "description": "",
        }
        assert servers["web"]["url"] == "http://127.0.0.1:1/mcp?key=***"
        assert servers["web"]["headers"] == {"X-Key": "***"}
        oauth = servers["web"]["oauth"]
        assert (oauth["client_id"], oauth["client_secret"]) == ("me", None)
        assert (oauth["refresh_token"], oauth["extra_token_params"]) == (None, {"assertion": "***"})
        assert oauth["refresh_skew_seconds"] == 60


async def test_a_shown_configuration_can_be_sent_back(tmp_path: Path) -> None:
    file = written(tmp_path)
    async with composed(tmp_path) as service:
        before = await shown(service)
        answer = await service.client.put("/api/mcp/config", json=before)
        assert answer.status_code == 200
        assert answer.json() == before
        now = stored(file)
        assert now["github"]["env"] == SERVERS["github"]["env"]
        assert now["github"]["args"] == SERVERS["github"]["args"]
        assert now["github"]["timeout"] == 7
        assert now["web"]["url"] == SERVERS["web"]["url"]
        assert now["web"]["headers"] == SERVERS["web"]["headers"]
        oauth = now["web"]["oauth"]
        assert oauth["client_secret"] == "hush-hush-client"
        assert oauth["refresh_token"] == "hush-hush-refresh"
        assert oauth["extra_token_params"] == {"assertion": "hush-hush-extra"}
        document = json.loads(file.read_text())
        assert (document["skills"], document["note"]) == (SKILLS, "stays")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_secrets_are_changed_and_cleared(tmp_path: Path) -> None:
    file = written(tmp_path)
    async with composed(tmp_path) as service:
        servers = (await shown(service))["mcp_servers"]
        servers["github"]["env"] = {"TOKEN": "new", "MORE": "$MORE"}
        servers["web"]["oauth"]["client_secret"] = ""
        servers["web"]["oauth"]["refresh_token"] = "rotated"
        servers["web"]["oauth"]["extra_token_params"] = {}
        del servers["web"]["headers"]["X-Key"]
        assert (await put(service, servers)).status_code == 200
        now = stored(file)
        assert now["github"]["env"] == {"TOKEN": "new", "MORE": "$MORE"}
        assert "client_secret" not in now["web"]["oauth"]
        assert now["web"]["oauth"]["refresh_token"] == "rotated"
        assert "extra_token_params" not in now["web"]["oauth"]
        assert "headers" not in now["web"]
        # The whole map is replaced.
        assert (await put(service, {"web": servers["web"]})).status_code == 200
        assert list(stored(file)) == ["web"]


NPX = {"type": "stdio", "command": "npx", "args": ["-y", "@x/server"]}
HTTP = {"type": "http", "url": "https://example.org/mcp"}


@pytest.mark.parametrize(
    ("server", "text"),
    [
        ({**NPX, "env": {"NEW": "***"}}, "new.env.NEW: *** stands for a stored value"),
        ({**HTTP, "headers": {"X": "***"}}, "new.headers.X: ***"),
        ({**HTTP, "url": "https://***@h/mcp"}, "new.url: ***"),
        ({**NPX, "args": ["--key", "***"]}, "new.args.1: ***"),
        ({**HTTP, "oauth": {"token_url": "https://t", "client_secret": "***"}}, "client_secret: ***"),
        ({**HTTP, "oauth": {"token_url": "https://t", "extra_token_params": {"a": "***"}}}, "params.a: ***"),
        ({"type": "stdio"}, "a stdio server needs `command`"),
        ({"type": "http"}, "a server of type http needs `url`"),
        ({"type": "http", "url": "ftp://h"}, "must start with http"),
        ({"type": "carrier", "command": "npx"}, "new: type"),
        ({**HTTP, "headers": {"X": "a\r\nB: c"}}, "is not a header"),
        ({**HTTP, "headers": {"X Y": "a"}}, "is not a header"),
        ({**NPX, "command": "bash"}, "only these can be set through the API: npx, uvx"),
        ({**NPX, "command": "/usr/bin/npx"}, "only these can be set"),
        ({**NPX, "command": "$SHELL"}, "only these can be set"),
        ({**NPX, "command": "npx -c"}, "only these can be set"),
        ({**NPX, "args": ["-c", "touch x"]}, "'-c' cannot be set through the API"),
        ({**NPX, "args": ["-ctouch x"]}, "cannot be set through the API"),
        ({**NPX, "args": ["--call=touch x"]}, "'--call' cannot be set"),
        ({**NPX, "args": ["--node-options", "x"]}, "cannot be set"),
        ({**NPX, "args": ["--REGISTRY=http://evil"]}, "cannot be set"),
        ({"command": "uvx", "args": ["--index-url", "http://evil", "x"]}, "cannot be set"),
        ({"command": "uvx", "args": ["a\nb"]}, "cannot be set"),
        ({**NPX, "env": {"LD_PRELOAD": "/x.so"}}, "new.env.LD_PRELOAD: cannot be set"),
        ({**NPX, "env": {"node_options": "--require x"}}, "cannot be set"),
        ({**NPX, "env": {"PATH": "/x"}}, "cannot be set"),
        ({**NPX, "env": {"npm_config_registry": "http://evil"}}, "cannot be set"),
        ({**NPX, "env": {"A": "\0"}}, "NUL"),
    ],
)  # fmt: skip
async def test_a_refused_write_changes_nothing(
    tmp_path: Path, server: dict[str, Any], text: str
) -> None:
    file = written(tmp_path, {})
    before = file.read_text()
    async with composed(tmp_path) as service:
        answer = await put(service, {"fine": HTTP | {"enabled": False}, "new": server})
        assert answer.status_code == 400
        assert text in answer.json()["detail"]
        assert "\n" not in answer.json()["detail"]
    assert file.read_text() == before


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
async def test_bad_names_of_servers_are_refused(tmp_path: Path, name: str) -> None:
    async with composed(tmp_path) as service:
        assert (await put(service, {name: HTTP})).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mcp_servers": []},
        {"mcp_servers": {"a": "npx"}},
        {"mcp_servers": {"a": {"args": "x"}}},
        {"mcp_servers": {"a": {"env": {"A": {}}}}},
        {"mcp_servers": {"a": {**HTTP, "url": "https://h/\ud800"}}},
        {"mcp_servers": {"a\ud800": HTTP}},
        {"mcp_servers": {"a": {**HTTP, "oauth": {"token_url": "https://t", "more": 2**70}}}},
    ],
)
async def test_malformed_bodies_are_refused(tmp_path: Path, body: object) -> None:
    headers = {"Content-Type": "application/json"}
    async with composed(tmp_path) as service:
        answer = await service.client.put(
            "/api/mcp/config", content=json.dumps(body), headers=headers
        )
        assert answer.status_code == 422
        assert (await service.client.get("/api/mcp/config")).json() == {"mcp_servers": {}}


async def test_servers_in_the_file_can_be_kept_and_switched(tmp_path: Path) -> None:
    """The file may start any program. The API may enable or disable a server, but not change its command."""
    own = {"enabled": False, "command": "/opt/own", "args": ["-c", "x"], "env": {"LD_PRELOAD": "y"}}
    broken = {"enabled": True, "type": "carrier", "command": ["?"], "env": "?", "oauth": {"x": 1}}
    file = written(tmp_path, {"own/one": own, "broken": broken})
    async with composed(tmp_path) as service:
        servers = (await shown(service))["mcp_servers"]
        assert servers["broken"]["type"] == "carrier"
        servers["own/one"]["description"] = "ours"
        del servers["broken"]
        assert (await put(service, servers)).status_code == 200
        assert stored(file)["own/one"]["args"] == ["-c", "x"]
        servers["own/one"]["args"] = ["-c", "y"]
        assert (await put(service, servers)).status_code == 400

        written(tmp_path, {"own/one": own, "broken": broken})
        path = "/api/mcp/config/own/one"
        answer = await service.client.patch(path, json={"enabled": True})
        assert (answer.status_code, answer.json()["enabled"]) == (200, True)
        assert stored(file) == {"own/one": {**own, "enabled": True}, "broken": broken}
        off = await service.client.patch("/api/mcp/config/broken", json={"enabled": False})
        assert off.status_code == 200
        none = await service.client.patch("/api/mcp/config/none", json={"enabled": False})
        assert none.status_code == 404
        bad = await service.client.patch(path, json={"enabled": "maybe"})
        assert bad.status_code == 422


async def test_other_commands_by_configuration(tmp_path: Path) -> None:
    text = "mcp: {allowed_commands: [own-server]}"
    async with composed(tmp_path, text) as service:
        fine = {"command": "own-server", "enabled": False}
        assert (await put(service, {"a": fine})).status_code == 200
        assert (await put(service, {"a": NPX})).status_code == 400


async def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    file = written(tmp_path)
    async with composed(tmp_path) as service:
        file.write_text("{ no JSON")
        answer = await put(service, {})
        assert answer.status_code == 500
        assert str(tmp_path) not in answer.text
        assert file.read_text() == "{ no JSON"
        assert "github" in (await shown(service))["mcp_servers"]


async def test_server_states_are_listed(tmp_path: Path) -> None:
    written(
        tmp_path, {"off": {**NPX, "enabled": False}, "odd": {"type": "carrier", "command": "x"}}
    )
    async with composed(tmp_path) as service:
        servers = (await service.client.get("/api/mcp/status")).json()["servers"]
        off: dict[str, object] = {"state": "disabled", "tools": [], "error": None, "attempts": 0}
        assert servers["off"] == off
        assert servers["odd"]["state"] == "failed"
        assert "type" in servers["odd"]["error"]


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://h/mcp", "https://h/mcp"),
        ("https://user:pw@h/", "https://***@h/"),
        ("https://h/?access_token=a&x=b#f", "https://h/?access_token=***&x=b#f"),
        ("$URL", "$URL"),
    ],
)
def test_addresses_without_secrets(url: str, seen: str) -> None:
    assert redact_url(url) == seen


def test_arguments_without_secrets() -> None:
    given = ["--github-token", "t", "--verbose", "-p", "x", "--token", "$T", "--dsn", "pg://u:p@h"]
    seen = ["--github-token", "***", "--verbose", "-p", "x", "--token", "$T", "--dsn", "pg://***@h"]
    assert redact_args(given) == seen


def test_check_reports_invalid_servers_and_guardrails(tmp_path: Path) -> None:
    """`parley check` starts none of them."""
    odd = {"type": "carrier", "command": "hush-hush"}
    written(tmp_path, {"odd": odd, "off": {**odd, "enabled": False}, "fine": NPX})
    file = tmp_path / "config.yaml"
    file.write_text("guardrails: {enabled: true, provider: {use: oap}}")
    config = load_config(str(file), {"PARLEY_HOME": str(tmp_path / "home")})
    guard, server = find_config_problems(config)
    assert "guardrails: oap needs a passport" in guard
    assert "mcpServers.odd: type" in server
    assert "hush-hush" not in server
    (tmp_path / "extensions_config.json").write_text("[]")
    assert "must be a JSON object" in list(find_config_problems(config))[1]
