"""`parley slack manifest`: the manifest declares exactly what the adapter uses."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from bots.common.webhooks import webhook_path
from bots.slack.capabilities import AGENT_EVENTS, AGENT_SCOPES, BOT_EVENTS, BOT_SCOPES
from bots.slack.manifest import DESCRIPTION_CHARS, app_manifest
from gateway.cli import main
from gateway.playground.slack.checks import load_methods
from gateway.playground.slack.server import FakeSlack

ADAPTER = Path(__file__).parents[2] / "bots" / "slack"
SCOPE_OF_EVENT = {
    "app_mention": "app_mentions:read",
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "agent_session_stopped": "chat:write",
    "assistant_thread_started": "assistant:write",
}
"""Scopes without which Slack does not send an event (docs.slack.dev/reference/events). Other events need no scope."""

FREE = {"app_home_opened", "app_uninstalled", "tokens_revoked"}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["slack", "manifest", *arguments]) == 0
    return capsys.readouterr().out


def test_the_manifest_is_for_socket_mode_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = yaml.safe_load(printed(capsys))
    assert found == app_manifest()
    assert found["settings"]["socket_mode_enabled"] is True
    assert "request_url" not in found["settings"]["event_subscriptions"]
    (command,) = found["features"]["slash_commands"]
    assert command["command"] == "/parley"
    assert "url" not in command
    assert found["features"]["app_home"]["messages_tab_enabled"] is True
    assert found["features"]["app_home"]["messages_tab_read_only_enabled"] is False


def test_over_http_everything_leads_to_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "--json", "--http", "https://bot.example.org/"))
    address = f"https://bot.example.org{webhook_path('slack')}"
    settings = found["settings"]
    assert settings["socket_mode_enabled"] is False
    assert settings["event_subscriptions"]["request_url"] == address
    assert settings["interactivity"] == {"is_enabled": True, "request_url": address}
    assert found["features"]["slash_commands"][0]["url"] == address


def test_an_agent_is_declared_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    plain, agent = yaml.safe_load(printed(capsys)), yaml.safe_load(printed(capsys, "--agent"))
    assert "agent_view" not in plain["features"]
    assert 1 <= len(agent["features"]["agent_view"]["agent_description"]) <= DESCRIPTION_CHARS
    for prompt in agent["features"]["agent_view"]["suggested_prompts"]:
        assert prompt["title"]
        assert prompt["message"]
    scopes, events = (
        [found["oauth_config"]["scopes"]["bot"] for found in (plain, agent)],
        [found["settings"]["event_subscriptions"]["bot_events"] for found in (plain, agent)],
    )
    assert set(scopes[1]) - set(scopes[0]) == set(AGENT_SCOPES)
    assert set(events[1]) - set(events[0]) == set(AGENT_EVENTS)


def test_the_link_holds_the_whole_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    address = urlsplit(printed(capsys, "--link", "--name", "Bär").strip())
    asked = parse_qs(address.query)
    assert (address.hostname, asked["new_app"]) == ("api.slack.com", ["1"])
    assert json.loads(asked["manifest_json"][0]) == app_manifest("Bär")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--http", "http://bot.example.org"],
        ["--http", "bot.example.org"],
        ["--http", "https://[x"],
        ["--http", "https://bot.example.org?a=1"],
        ["--name", ""],
        ["--name", "x" * 36],
    ],
)
def test_manifests_that_slack_would_refuse_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slack", "manifest", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"parley: {arguments[0]}")


def test_each_event_has_the_scope_that_it_needs() -> None:
    assert {SCOPE_OF_EVENT[event] for event in BOT_EVENTS if event not in FREE} <= set(BOT_SCOPES)
    needed = {SCOPE_OF_EVENT[event] for event in AGENT_EVENTS if event not in FREE}
    assert needed <= {*BOT_SCOPES, *AGENT_SCOPES}
    assert "commands" in BOT_SCOPES


def used_methods() -> set[str]:
    """Return the Web API methods that the adapter's source calls with a bot token, in the SDK's spelling.

    Leaves out oauth.v2.access, called with `api_call`. It takes the app's own credentials and returns the token.
    """
    source = "".join(file.read_text() for file in ADAPTER.glob("*.py"))
    generic = re.findall(r'\bweb\.api_call\(\s*"([\w.]+)"', source)
    assert generic == ["oauth.v2.access"]
    return set(re.findall(r"\bweb\.((?!proxy|api_call)[a-z]\w*)\(", source))


def test_each_call_of_the_adapter_has_a_scope_that_allows_it() -> None:
    specs: dict[str, Any] = load_methods()
    by_name = {re.sub(r"(?<=[a-z])(?=[A-Z])|\.", "_", name).lower(): name for name in specs}
    used = used_methods()
    assert {"auth_test", "chat_postmessage"} <= {name.lower() for name in used}
    for called in used:
        spec = specs[by_name.get(called.lower()) or by_name[_spelt(called, by_name)]]
        allowed = set(spec.get("scope", {}).get("bot", []))
        assert not allowed or allowed & {*BOT_SCOPES, *AGENT_SCOPES}, called


def _spelt(called: str, by_name: dict[str, str]) -> str:
    """Return the key of a method that the SDK spells without the underscores of our keys."""
    return next(key for key in by_name if key.replace("_", "") == called.replace("_", "").lower())


async def test_the_fake_slack_knows_the_same_scopes() -> None:
    async with FakeSlack() as slack:
        assert slack.server.scopes == set(BOT_SCOPES)
