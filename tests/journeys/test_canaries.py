"""Searches all output and all stored data of the service for a secret of each kind."""

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import psutil
import pytest
import yaml

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import ROOT, Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
SERVER = ROOT / "tests" / "fakes" / "mcp_server.py"
IN_ENVIRONMENT = {
    "MODEL_KEY": "canary-model-key-5f1c09a7",
    "OTHER_MODEL_KEY": "canary-other-model-key-77d0",
    "MCP_SECRET": "canary-mcp-environment-91be",
    "MCP_TOKEN": "canary-mcp-header-33aa",
    "SEARCH_KEY": "canary-search-key-c0de",
    "UNRELATED_SECRET": "canary-unrelated-4242",
}
IN_CONFIGURATION = {
    "signing_secret": "canary-signing-secret-8a",
    "webhook_secret": "canary-webhook-secret-9b",
    "encrypt_key": "canary-encrypt-key-0c",
    "verification_token": "canary-verification-1d",
}
ASKED_WITH = {"query": "canary-in-a-query-2e", "wrong token": "canary-wrong-token-3f"}
KEY_FILES = {"credentials.key", "webhook_key"}
COMMAND = (
    'env; R=$(printf "\\57"); cat ${{R}}proc${{R}}*${{R}}environ ${{R}}proc${{R}}*${{R}}cmdline;'
    " H=$(echo {home} | base64 -d); cat $H$R* ; ls -la $R $H; sleep 1; exit 3"
)
"""Code that looks for secrets. It spells paths in a way that no check of the text refuses."""


def speak(request: ModelRequest) -> ModelReply:
    """Answer, call tools, or refuse with a message that quotes the key, as some servers do."""
    said, after_tool = request.last_user_text, request.messages[-1]["role"] == "tool"
    if said == "refuse":
        key = request.headers.get("Authorization", "")
        return ModelReply(status=401, error_text=f"Incorrect API key provided: {key}")
    if said.startswith("run ") and not after_tool:
        return ModelReply(calls=(ToolCall("bash", {"description": "look", "command": said[4:]}),))
    if said == "fail" and not after_tool:
        return ModelReply(calls=(ToolCall("tools_raise_error", {}),))
    if after_tool:
        return ModelReply(text=str(request.messages[-1]["content"])[:3000])
    return ModelReply(text=f"You said: {said}")


def configuration(platforms: PlatformServers, model: str) -> dict[str, Any]:
    config = with_model(model)
    first = config["models"][0] | {"api_key": "$MODEL_KEY"}
    nowhere = "http://127.0.0.1:9/v1"
    broken = first | {"name": "broken", "api_key": "$OTHER_MODEL_KEY", "base_url": nowhere}
    tavily = "agent.tools.web.tavily:tavily_search"
    search = {"name": "web_search", "group": "web", "use": tavily, "api_key": "$SEARCH_KEY"}
    channels = {name: dict(section) for name, section in platforms.channels.items()}
    for channel, key in (("slack", "signing_secret"), ("telegram", "webhook_secret"), ("feishu", "encrypt_key"),
                         ("feishu", "verification_token")):  # fmt: skip
        channels[channel][key] = IN_CONFIGURATION[key]
    return {
        **config,
        "models": [first, broken],
        "tools": [search],
        "channels": channels,
        "log_level": "debug",
    }


def extensions() -> str:
    servers = {
        "tools": {"type": "stdio", "command": sys.executable, "args": [str(SERVER), "stdio"],
                  "env": {"SECRET": "$MCP_SECRET", "PYTHONPATH": str(ROOT)}},
        "gone": {"type": "http", "url": "http://127.0.0.1:9/mcp?key=$MCP_TOKEN",
                 "headers": {"Authorization": "Bearer $MCP_TOKEN"}},
    }  # fmt: skip
    return json.dumps({"mcpServers": servers})


def forms(secret: bytes) -> Iterator[bytes]:
    """Yield a secret in plain text and in each encoding."""
    yield secret
    yield base64.b64encode(secret).rstrip(b"=")[:-1]
    yield secret.hex().encode()
    if not secret.isascii() or quote(secret).encode() != secret:
        yield quote(secret).encode()


class Witness:
    """Collects everything that is visible from outside."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._secrets = secrets
        self.found: list[str] = []
        self.looked: dict[str, int] = {}

    def look(self, where: str, what: bytes | str, *, but: str = "") -> None:
        """Search for all secrets, except the one (`but`) that must be there."""
        data = what.encode("utf-8", "replace") if isinstance(what, str) else what
        self.looked[where] = self.looked.get(where, 0) + len(data)
        for name, secret in self._secrets.items():
            if name != but and any(form in data for form in forms(secret)):
                self.found.append(f"{name} in {where}")

    async def watch_processes(self, pid: int) -> None:
        """Collect the command lines of the service and its children until canceled."""
        while True:
            service = psutil.Process(pid)
            for process in (service, *service.children(recursive=True)):
                with suppress(psutil.Error):
                    self.look("command lines", "\0".join(process.cmdline()))
            await anyio.sleep(0.05)


async def talk(user: ChatUser, service: Service) -> None:
    """Let one person cause each kind of failure."""
    home = base64.b64encode(str(service.home).encode()).decode()
    command = COMMAND.format(home=home)
    for said, answer in (
        ("hello", "You said: hello"),
        ("refuse", "⚠️"),
        ("fail", ""),
        (f"run {command}", ""),
        ("/models", "fake"),
        ("/status", ""),
        ("/why", ""),
        ("/export", ""),
    ):
        seen = len(user.bot_messages())
        await user.send(said)
        if answer:
            await user.wait_for_message(answer)
        await eventually(partial(has_more_than, user, seen), within_s=60)


def has_more_than(user: ChatUser, count: int) -> bool:
    return len(user.bot_messages()) > count


async def ask_everything(witness: Witness, service: Service, token: str) -> None:
    """Send requests to every route without path parameters, with and without permission."""
    async with service.client() as client:
        described = (await client.get("/api/openapi.json", timeout=60)).json()["paths"]
        endless = ("/stream", "/events")
        for path in (path for path in described if not path.endswith(endless)):
            real = (
                path.replace("{channel}", "slack")
                .replace("{name}", "slack")
                .replace("{thread_id}", "nothing")
            )
            answer = await client.get(real, params={"key": ASKED_WITH["query"]})
            witness.look(f"GET {path}", f"{answer.headers}{answer.text}")
            broken = await client.post(real, content=b'{"x": ')
            witness.look(f"POST {path}", f"{broken.headers}{broken.text}")
    wrong = {"Authorization": f"Bearer {ASKED_WITH['wrong token']}"}
    async with httpx.AsyncClient(base_url=service.url, headers=wrong) as stranger:
        for path in ("/api/channels", "/metrics", "/webhooks/slack", f"/api/x{token[:3]}"):
            answer = await stranger.get(path)
            witness.look("answers to strangers", f"{answer.headers}{answer.text}")


@pytest.mark.timeout(300)
async def test_no_secret_is_found_anywhere(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=speak) as model:
        (tmp_path / "extensions_config.json").write_text(extensions())
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        for name in KEY_FILES:
            (home / name).write_bytes(name.encode().ljust(32, b"\x01")[:32])
        config = configuration(platforms, model.base_url)
        async with serving(
            tmp_path, config, *PLATFORMS, environment=IN_ENVIRONMENT, fork=False
        ) as service:
            token = (home / "admin_token").read_text().strip()
            witness = Witness(secrets_of(platforms, home))
            users = platforms.private_users(1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(witness.watch_processes, service.pid)
                async with anyio.create_task_group() as talks:
                    for user in users:
                        talks.start_soon(talk, user, service)
                await ask_everything(witness, service, token)
                tasks.cancel_scope.cancel()
            for command in (["doctor", "--no-model", "--json"], ["check", "--json"], ["threads"]):
                _, out, errors = await service.command(*command)
                witness.look(f"parley {command[0]}", out + errors)
            await service.stop()
        look_at_what_is_left(witness, service, users, model)
        assert witness.found == []
        assert min(witness.looked.values()) > 0
        ran = [r for r in model.requests if "PWD=" in str(r.messages[-1].get("content"))]
        assert len(ran) >= len(users), "the command did not run"


def secrets_of(platforms: PlatformServers, home: Path) -> dict[str, bytes]:
    named = {
        **IN_ENVIRONMENT,
        **IN_CONFIGURATION,
        **ASKED_WITH,
        "slack bot token": platforms.slack.bot_token,
        "slack app token": platforms.slack.app_token,
        "telegram token": platforms.telegram.token,
        "feishu secret": platforms.feishu.app_secret,
        "admin token": (home / "admin_token").read_text().strip(),
    }
    files = {name: (home / name).read_bytes() for name in KEY_FILES}
    return {**{name: secret.encode() for name, secret in named.items()}, **files}


def look_at_what_is_left(
    witness: Witness, service: Service, users: list[ChatUser], model: FakeModelServer
) -> None:
    witness.look("the log", service.log.read_bytes())
    for user in users:
        witness.look("messages", "\n".join(user.bot_messages()))
    for request in model.requests:
        witness.look("requests to the model", json.dumps(request.body))
        witness.look("requests to the model", str(request.headers), but="MODEL_KEY")
    own = KEY_FILES | {"admin_token"}
    for path in service.home.rglob("*"):
        if path.is_file() and path.name not in own:
            witness.look(f"home/{path.name}", path.read_bytes() or b" ")
    assert yaml.safe_load(service.config.read_text())["models"][0]["api_key"] == "$MODEL_KEY"
