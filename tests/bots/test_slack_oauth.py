"""Installing the Slack app by OAuth: several workspaces, each served with its own token."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import httpx
import pytest

from bots.common.installation import InstallationEndpoint
from bots.common.webhooks import WebhookRequest, WebhookResponse
from bots.slack.adapter import SlackAdapter
from bus.messages import ReplyTarget
from bus.platform import ConnectionState
from gateway.playground.slack.server import BOT_USER, FakeSlack
from tests.bots.slack_rig import FAST, config, fast_slack
from tests.fakes.intake import RecordingIntake


class MemoryCredentialStore:
    """Keeps secrets in memory."""

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], str] = {}

    async def save(self, channel: str, name: str, secret: str) -> None:
        self.secrets[channel, name] = secret

    async def load(self, channel: str) -> Mapping[str, str]:
        return {name: secret for (owner, name), secret in self.secrets.items() if owner == channel}

    async def delete(self, channel: str, name: str) -> None:
        self.secrets.pop((channel, name), None)


def installable(
    slack: FakeSlack, vault: MemoryCredentialStore, **given: object
) -> tuple[SlackAdapter, InstallationEndpoint]:
    slack.server.oauth.redirect_url = "https://bot.example.org/slack/slack/oauth_redirect"
    oauth = slack.server.oauth
    settings = {
        "bot_token": "",
        "client_id": oauth.client_id,
        "client_secret": oauth.client_secret,
        **given,
    }
    adapter = SlackAdapter(config(slack, settings), timeouts=FAST)
    endpoint = adapter.enable_installation(vault)
    assert endpoint is not None
    return adapter, endpoint


async def browse(endpoint: InstallationEndpoint) -> WebhookRequest:
    """Follow the link to Slack and decide there. Return the request with which the browser returns."""
    start = await endpoint.start(WebhookRequest(headers={}, body=b"", method="GET"))
    assert start.status == 302
    async with httpx.AsyncClient(trust_env=False) as browser:
        shown = await browser.get(start.headers["location"])
    back = urlsplit(shown.headers["location"])
    cookie = start.headers["set-cookie"].partition(";")[0]
    query = dict(parse_qsl(back.query))
    return WebhookRequest(headers={"cookie": cookie}, body=b"", method="GET", query=query)


@pytest.mark.parametrize("root_path", ["", "/parley"])
async def test_a_browser_comes_back_with_its_cookie_below_any_path(root_path: str) -> None:
    folder = f"https://bot.example.org{root_path}/slack/slack"
    async with fast_slack() as slack:
        _, endpoint = installable(slack, MemoryCredentialStore())
        start = await endpoint.start(WebhookRequest(headers={}, body=b"", method="GET"))
        browser = httpx.Cookies()
        browser.extract_cookies(
            httpx.Response(
                302, headers=start.headers, request=httpx.Request("GET", f"{folder}/install")
            )
        )
        for path, is_sent in (
            (f"{folder}/oauth_redirect", True),
            (f"{folder}-sales/install", False),
            (f"https://bot.example.org{root_path}/api/models", False),
        ):
            request = httpx.Request("GET", path)
            browser.set_cookie_header(request)
            assert ("cookie" in request.headers) is is_sent, path


async def install(endpoint: InstallationEndpoint) -> WebhookResponse:
    return await endpoint.finish(await browse(endpoint))


def message(text: str, channel: str) -> dict[str, object]:
    return {
        "type": "message", "channel": channel, "channel_type": "im", "user": "U1ANN", "text": text,
        "ts": "1700000000.000100",
    }  # fmt: skip


def of_team(team: str) -> dict[str, object]:
    bot = {"team_id": team, "user_id": BOT_USER, "is_bot": True, "enterprise_id": None}
    return {"team_id": team, "authorizations": [bot]}


TEAMS = ("T2TEAM", "T3TEAM")


@asynccontextmanager
async def started(adapter: SlackAdapter, intake: RecordingIntake) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda task_status: adapter.run(intake, task_status=task_status))
        yield
        tasks.cancel_scope.cancel()


async def serve_all_teams(slack: FakeSlack, adapter: SlackAdapter, intake: RecordingIntake) -> None:
    await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
    for team in TEAMS:
        slack.send_event(message(team, f"D{team}"), **of_team(team))
    await slack.wait_for(lambda: len(intake.received) == 2)
    for inbound in intake.received:
        assert inbound.key.workspace == inbound.text
        assert inbound.sender.kind == "member"
        await adapter.send(inbound.reply_target, "answer", key=inbound.text)
        sent = slack.asked("chat.postMessage")[-1]
        assert (sent.team, sent.arguments["channel"]) == (inbound.text, inbound.key.chat)


async def test_each_workspace_is_served_with_its_own_token_also_after_a_restart() -> None:
    vault, intake = MemoryCredentialStore(), RecordingIntake()
    async with fast_slack() as slack:
        for team in TEAMS:
            slack.workspace.channel(f"D{team}", kind="im", members={"U1ANN"})
        adapter, endpoint = installable(slack, vault)
        async with started(adapter, intake):
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
            assert "/slack/slack/install" in adapter.health().detail
            for team in TEAMS:
                slack.server.oauth.team = team
                assert (await install(endpoint)).status == 200
            await serve_all_teams(slack, adapter, intake)
        restarted, _ = installable(slack, vault)
        again = RecordingIntake()
        async with started(restarted, again):
            await serve_all_teams(slack, restarted, again)
    assert slack.violations == []


async def test_the_only_workspace_has_the_chats_in_which_nobody_has_written() -> None:
    async with fast_slack() as slack:
        slack.workspace.channel("C7", kind="channel", members=set())
        adapter, endpoint = installable(slack, MemoryCredentialStore())
        assert (await install(endpoint)).status == 200
        await adapter.send(
            ReplyTarget(chat="C7"), "The backup failed", key="notification:slack:1:0"
        )
        [sent] = slack.asked("chat.postMessage")
        assert (sent.team, sent.arguments["channel"]) == (slack.server.oauth.team, "C7")
    assert slack.violations == []


async def test_events_of_a_workspace_that_did_not_install_are_acknowledged_and_ignored() -> None:
    vault = MemoryCredentialStore()
    async with fast_slack() as slack:
        adapter, endpoint = installable(slack, vault)
        assert (await install(endpoint)).status == 200
        intake = RecordingIntake()
        async with started(adapter, intake):
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
            envelope = slack.send_event(message("hi", "D9"), **of_team("T9"))
            await slack.wait_for(lambda: envelope.acked)
    assert intake.received == []
    assert "not installed" in intake.ignored[0][1]


async def test_a_workspace_that_uninstalls_the_app_is_forgotten() -> None:
    vault = MemoryCredentialStore()
    async with fast_slack() as slack:
        adapter, endpoint = installable(slack, vault)
        await install(endpoint)
        async with started(adapter, RecordingIntake()):
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
            slack.server.oauth.tokens.clear()
            slack.send_event({"type": "app_uninstalled"}, **of_team("T2TEAM"))
            await slack.wait_for(lambda: not vault.secrets)
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)


@pytest.mark.parametrize("forged", ["state", "cookie", "other browser", "expired", "empty"])
async def test_a_forged_or_late_return_installs_nothing(forged: str) -> None:
    vault, now = MemoryCredentialStore(), [1_700_000_000.0]
    async with fast_slack() as slack:
        oauth = slack.server.oauth
        given = {"client_id": oauth.client_id, "client_secret": oauth.client_secret}
        adapter = SlackAdapter(config(slack, given), timeouts=FAST, now=lambda: now[0])
        endpoint = adapter.enable_installation(vault)
        assert endpoint is not None
        oauth.redirect_url = "https://bot.example.org/back"
        back, other = await browse(endpoint), await browse(endpoint)
        query, headers = dict(back.query), dict(back.headers)
        if forged == "state":
            query["state"] = "9" + query["state"]
        elif forged == "cookie":
            headers = {"cookie": 'a="'}
        elif forged == "other browser":
            headers = dict(other.headers)
        elif forged == "expired":
            now[0] += 601
        else:
            query = {}
        request = WebhookRequest(headers=headers, body=b"", method="GET", query=query)
        assert (await endpoint.finish(request)).status == 400
        assert vault.secrets == {}
        assert slack.asked("oauth.v2.access") == []


async def test_refusals_are_reported_and_store_nothing() -> None:
    vault = MemoryCredentialStore()
    async with fast_slack() as slack:
        _, endpoint = installable(slack, vault, allowed_workspaces=["T7"])
        refused = await install(endpoint)
        assert (refused.status, b"T2TEAM is not allowed to install" in refused.body) == (502, True)
        slack.server.oauth.team = ""
        canceled = await install(endpoint)
        assert (canceled.status, b"access_denied" in canceled.body) == (400, True)
        slack.server.oauth.team = "T7"
        request = await browse(endpoint)
        assert (await endpoint.finish(request)).status == 200
        assert (await endpoint.finish(request)).status == 502  # a code works once
    assert list(vault.secrets) == [("slack", "T7")]


async def test_without_a_client_there_is_nothing_to_install() -> None:
    async with fast_slack() as slack:
        adapter = SlackAdapter(config(slack), timeouts=FAST)
        assert adapter.enable_installation(MemoryCredentialStore()) is None
        assert ReplyTarget(chat="C1").user == ""


async def post(slack: FakeSlack, adapter: SlackAdapter, body: bytes, kind: str) -> WebhookResponse:
    """Post a request as Slack does."""
    assert adapter.webhook is not None
    headers = {name.lower(): value for name, value in slack.events.signed(body).items()}
    return await adapter.webhook.handle(
        WebhookRequest(headers=headers | {"content-type": kind}, body=body)
    )


async def post_event(
    slack: FakeSlack, adapter: SlackAdapter, event: Mapping[str, object], **holder: object
) -> None:
    envelope = {"type": "event_callback", "event_id": f"Ev{event['text']}", "event": event}
    body = json.dumps({**envelope, **holder}).encode()
    assert (await post(slack, adapter, body, "application/json")).status == 200


@asynccontextmanager
async def installed_over_http(
    slack: FakeSlack, intake: RecordingIntake, *holders: str
) -> AsyncIterator[SlackAdapter]:
    """Run an adapter that Slack calls, installed by workspaces or organizations."""
    given = {"mode": "http", "signing_secret": slack.events.secret, "app_token": ""}
    adapter, endpoint = installable(slack, MemoryCredentialStore(), **given)
    async with started(adapter, intake):
        for holder in holders:
            slack.server.oauth.team = holder
            assert (await install(endpoint)).status == 200
        await slack.wait_for(lambda: "Waiting for Slack" in adapter.health().detail)
        yield adapter


async def test_over_http_each_workspace_is_served_with_its_own_token() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, installed_over_http(slack, intake, *TEAMS) as adapter:
        for team in TEAMS:
            slack.workspace.channel(f"D{team}", kind="im", members={"U1ANN"})
            await post_event(slack, adapter, message(team, f"D{team}"), **of_team(team))
        for inbound in intake.received:
            await adapter.send(inbound.reply_target, "answer", key=inbound.text)
            sent = slack.asked("chat.postMessage")[-1]
            assert (sent.team, sent.arguments["channel"]) == (inbound.text, inbound.key.chat)
    assert [inbound.key.workspace for inbound in intake.received] == list(TEAMS)
    assert slack.violations == []


async def test_an_organization_installs_the_app_once_for_all_its_workspaces() -> None:
    intake = RecordingIntake()
    org, bot = "E1ORG", {"user_id": BOT_USER, "is_bot": True, "is_enterprise_install": True}
    async with fast_slack() as slack, installed_over_http(slack, intake, org) as adapter:
        for team in TEAMS:
            slack.workspace.channel(f"D{team}", kind="im", members={"U1ANN"})
            where = [{**bot, "enterprise_id": org, "team_id": team}]
            event = message(team, f"D{team}")
            await post_event(slack, adapter, event, team_id=team, authorizations=where)
        # Presses and commands name the workspace of the person who pressed, or none.
        press = {
            "type": "block_actions", "team": None, "enterprise": {"id": org}, "is_enterprise_install": True,
            "user": {"id": "U1ANN", "team_id": TEAMS[1]}, "trigger_id": "t1", "channel": {"id": "DT2TEAM"},
            "message": {"ts": "1.2"}, "actions": [{"action_id": "parley.0", "value": "stop:1:0"}],
        }  # fmt: skip
        form = "application/x-www-form-urlencoded"
        pressed = urlencode({"payload": json.dumps(press)}).encode()
        assert (await post(slack, adapter, pressed, form)).status == 200
        command = {
            "command": "/parley", "text": "help", "team_id": TEAMS[1], "enterprise_id": org,
            "is_enterprise_install": "true", "channel_id": "DT2TEAM", "user_id": "U1ANN", "trigger_id": "t2",
        }  # fmt: skip
        assert (await post(slack, adapter, urlencode(command).encode(), form)).status == 200
        for inbound in intake.received:
            await adapter.send(inbound.reply_target, "answer", key=inbound.event_id)
            assert slack.asked("chat.postMessage")[-1].team == org
    assert [inbound.text for inbound in intake.received] == [*TEAMS, "/help"]
    assert [press.token for press in intake.pressed] == ["stop:1:0"]
    keys = [inbound.key.workspace for inbound in intake.received] + [
        intake.pressed[0].key.workspace
    ]
    assert keys == [org] * 4
    assert {inbound.sender.kind for inbound in intake.received[:2]} == {"member"}
