"""Tokens that Parley gets or issues, and the credentials used to request them, appear nowhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from gateway.playground.slack.server import BOT_USER, FakeSlack
from tests.agent.test_mcp import web_server
from tests.fakes.mcp_server import ACCESS_TOKEN
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_canaries import Witness, ask_everything

IN_ENVIRONMENT = {
    "SLACK_CLIENT_SECRET": "canary-slack-client-secret-6a",
    "SLACK_SIGNING_SECRET": "canary-slack-signing-secret-7b",
    "MCP_CLIENT_SECRET": "canary-mcp-client-secret-8c",
    "MCP_REFRESH_TOKEN": "canary-mcp-refresh-token-9d",
}
CHANNEL = "slack-all"


def speak(request: ModelRequest) -> ModelReply:
    """Call the MCP tool that needs a token. Reply with its result."""
    if request.messages[-1]["role"] == "tool":
        return ModelReply(text=f"Done: {request.messages[-1]['content']}")
    return ModelReply(calls=(ToolCall("safe_echo", {"text": request.last_user_text}),))


def configuration(slack: FakeSlack, model: str) -> dict[str, Any]:
    section = {
        "platform": "slack",
        "enabled": True,
        "base_url": slack.base_url,
        "app_token": slack.app_token,
        "client_id": slack.server.oauth.client_id,
        "client_secret": "$SLACK_CLIENT_SECRET",
        "signing_secret": "$SLACK_SIGNING_SECRET",
    }
    return {**with_model(model), "channels": {CHANNEL: section}, "log_level": "debug"}


def extensions(web: str) -> str:
    """Return a server that grants tokens, and two that refuse to."""
    good = {
        "token_url": f"{web}/token",
        "client_id": "me",
        "client_secret": "$MCP_CLIENT_SECRET",
        "grant_type": "refresh_token",
        "refresh_token": "$MCP_REFRESH_TOKEN",
    }
    url = f"{web}/guarded/mcp"
    servers = {
        "safe": {"url": url, "oauth": good},
        "refused": {"url": url, "oauth": good | {"token_url": f"{web}/nothing"}},
        "gone": {"url": url, "oauth": good | {"token_url": "http://127.0.0.1:9/token"}},
    }
    return json.dumps({"mcpServers": servers})


async def install(service: Service, witness: Witness) -> None:
    """Install the app in a workspace with a browser, and check each page."""
    browser = httpx.AsyncClient(base_url=service.url, trust_env=False)
    async with browser:
        start = await browser.get(f"/slack/{CHANNEL}/install")
        witness.look("the browser", f"{start.headers}{start.text}")
        shown = await browser.get(start.headers["location"])
        back = urlsplit(shown.headers["location"])
        done = await browser.get(f"{back.path}?{back.query}")
        assert "installed" in done.text
        witness.look("the browser", f"{done.headers}{done.text}")
        again = await browser.get(f"{back.path}?{back.query}")  # The code was used.
        witness.look("the browser", f"{again.headers}{again.text}")


async def grant_tokens(service: Service) -> dict[str, str]:
    """Create named tokens, use, replace and revoke them. Return all by name."""
    found: dict[str, str] = {}
    async with service.client() as client:
        for scope in ("read", "operator", "admin"):
            body = {"name": scope, "scope": scope}
            answer = (await client.post("/api/tokens", json=body)).raise_for_status()
            found[f"API token {scope}"] = value = str(answer.json()["token"])
            used = {"Authorization": f"Bearer {value}"}
            (await client.get("/api/channels", headers=used)).raise_for_status()
            await client.get(f"/api/threads/{value}", headers=used | {"X-Request-ID": value})
        replaced = (await client.post("/api/tokens/read/rotate")).raise_for_status()
        found["API token rotated"] = str(replaced.json()["token"])
        (await client.delete("/api/tokens/operator")).raise_for_status()
        for value in list(found.values()):  # Some of them no longer have access.
            await client.get("/api/models", headers={"Authorization": f"Bearer {value}"})
    return found


async def talk(slack: FakeSlack, witness: Witness) -> None:
    """Let the model call the tool, and send all commands about the bot."""
    bot = {"team_id": "T2TEAM", "user_id": BOT_USER, "is_bot": True, "enterprise_id": None}
    team = {"team_id": "T2TEAM", "authorizations": [bot]}
    for number, text in enumerate(("hello", "/status", "/why", "/export"), 1):
        before = len(slack.texts("D1ANN"))
        event = {"type": "message", "channel": "D1ANN", "channel_type": "im", "user": "U1ANN",
                 "text": text, "ts": f"170000000{number}.000100"}  # fmt: skip
        slack.send_event(event, **team)
        await slack.wait_for(lambda n=before: len(slack.texts("D1ANN")) > n, timeout_s=60)  # type: ignore[misc]
    await slack.wait_for(
        lambda: any(text.startswith("Done: hello") for text in slack.texts("D1ANN")), timeout_s=60
    )
    witness.look("messages", "\n".join(slack.texts("D1ANN")))


async def look_around(service: Service, slack: FakeSlack, witness: Witness) -> None:
    """Write to the bot, and call all routes and commands."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(witness.watch_processes, service.pid)
        await talk(slack, witness)
        await ask_everything(witness, service, "nothing")
        tasks.cancel_scope.cancel()
    for command in (["doctor", "--no-model", "--json"], ["check", "--json"], ["token", "list"]):
        _, out, errors = await service.command(*command)
        witness.look(f"parley {command[0]}", out + errors)


async def forms_asked_with(web: str) -> list[dict[str, str]]:
    """Return the forms that the MCP server's token endpoint received."""
    async with httpx.AsyncClient(trust_env=False) as client:
        return list((await client.get(f"{web}/asked")).json())


@pytest.mark.timeout(300)
async def test_no_granted_token_is_found_anywhere(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer(answer=speak) as model:
        slack.workspace.channel("D1ANN", kind="im", members={"U1ANN"})
        oauth = slack.server.oauth
        oauth.client_secret = IN_ENVIRONMENT["SLACK_CLIENT_SECRET"]
        oauth.redirect_url = f"https://bot.example.org/slack/{CHANNEL}/oauth_redirect"
        with web_server() as (port, _):
            web = f"http://127.0.0.1:{port}"
            (tmp_path / "extensions_config.json").write_text(extensions(web))
            config = configuration(slack, model.base_url)
            async with serving(tmp_path, config, environment=IN_ENVIRONMENT, fork=False) as service:
                await install(service, Witness(encoded(IN_ENVIRONMENT)))
                granted = await grant_tokens(service)
                granted["MCP access token"] = ACCESS_TOKEN
                granted["Slack bot token"] = next(iter(oauth.tokens))
                witness = Witness(encoded(IN_ENVIRONMENT | granted))
                await service.until_connected(CHANNEL)
                await look_around(service, slack, witness)
                await install(service, witness)
                forms = await forms_asked_with(web)
                await service.stop()
        for field, name in (
            ("client_secret", "MCP_CLIENT_SECRET"),
            ("refresh_token", "MCP_REFRESH_TOKEN"),
        ):
            assert {form[field] for form in forms} == {IN_ENVIRONMENT[name]}
    witness.look("the log", service.log.read_bytes())
    for request in model.requests:
        witness.look("requests to the model", json.dumps(request.body) + str(request.headers))
    for path in service.home.rglob("*"):
        if path.is_file():
            witness.look(f"home/{path.name}", path.read_bytes() or b" ")
    assert witness.found == []
    assert min(witness.looked.values()) > 0


def encoded(secrets: Mapping[str, str]) -> dict[str, bytes]:
    return {name: secret.encode() for name, secret in secrets.items()}
