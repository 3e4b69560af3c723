"""Webhook endpoints of chat platforms: which requests access control admits, and how they are handled."""

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest
import yaml

from bots.common.webhooks import ACKNOWLEDGED, WebhookEndpoint, WebhookRequest, WebhookResponse
from gateway.config import load_config
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.events import SIGNING_SECRET
from gateway.playground.slack.server import FakeSlack
from gateway.serving.startup_report import config_hints
from store.work_group import WORK_GROUP
from tests.contracts.webhook_rig import WebhookApp
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed

SLACK = "/webhooks/slack"
QUESTION = b'{"type": "url_verification", "token": "t", "challenge": "c-1"}'


def settings(slack: FakeSlack, **more: object) -> str:
    section = {
        "enabled": True,
        "mode": "http",
        "bot_token": slack.bot_token,
        "signing_secret": SIGNING_SECRET,
        "base_url": slack.base_url,
    }
    return yaml.safe_dump({"channels": {"slack": section}, **more})


def signed(body: bytes) -> dict[str, str]:
    moment = str(int(time.time()))
    words = f"v0:{moment}:".encode() + body
    proof = hmac.new(SIGNING_SECRET.encode(), words, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": moment,
        "X-Slack-Signature": f"v0={proof}",
    }


async def state(service: ComposedService) -> dict[str, object]:
    answer = await service.client.get("/api/channels")
    found: dict[str, object] = answer.json()["channels"]["slack"]
    return found


async def verified(service: ComposedService) -> httpx.Response:
    """Send Slack's verification request. Return the answer once the channel is signed in."""

    async def ask() -> httpx.Response:
        return await service.stranger.post(SLACK, content=QUESTION, headers=signed(QUESTION))

    answer = await eventually(ask, lambda answer: answer.status_code != 503)
    await eventually(lambda: state(service), lambda told: told["running"])
    return answer


async def test_a_platform_needs_its_signature_and_no_token(tmp_path: Path) -> None:
    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        before = await state(service)
        assert before["running"] is False
        answer = await verified(service)
        assert (answer.status_code, answer.json()) == (200, {"challenge": "c-1"})
        assert (await state(service))["running"] is True
        for client in (service.stranger, service.client):
            refused = await client.post(SLACK, content=QUESTION)
            assert (refused.status_code, refused.json()) == (401, {"detail": "Refused."})


async def test_a_channel_that_waits_for_the_first_call_is_ready_for_it(tmp_path: Path) -> None:
    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        await eventually(
            lambda: service.client.get("/health/ready"), lambda ready: ready.is_success
        )
        told = await state(service)
        assert (told["running"], told["state"]) == (False, "connecting")
        assert "Waiting for Slack's first request" in str(told["detail"])


async def test_a_message_is_in_the_journal_when_the_platform_is_answered(tmp_path: Path) -> None:
    event = {
        "type": "message", "channel": "DU1ANN", "channel_type": "im", "user": "U1ANN", "text": "hello",
        "ts": "1700000000.000100",
    }  # fmt: skip
    body = json.dumps(
        {"type": "event_callback", "team_id": "T1TEAM", "event_id": "Ev1", "event": event}
    ).encode()
    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        await verified(service)
        for _ in range(2):
            answer = await service.stranger.post(SLACK, content=body, headers=signed(body))
            assert answer.status_code == 200
        rows = (await service.client.get("/api/channels/inbox")).json()["rows"]
        assert len(rows) == 1


async def test_webhooks_check_the_host_header(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        gateway = {"allowed_hosts": ["bot.example.com"]}
        async with composed(tmp_path, settings(slack, gateway=gateway)) as service:
            await verified(service)
            for host, status in (("bot.example.com", 200), ("evil.example.com", 421)):
                headers = {**signed(QUESTION), "Host": host}
                answer = await service.stranger.post(SLACK, content=QUESTION, headers=headers)
                assert answer.status_code == status, host


@pytest.mark.parametrize(
    "path",
    [
        "/webhooks/telegram", "/webhooks/feishu", "/webhooks/terminal", "/webhooks/", "/webhooks",
        "/webhooks/slack/", "/webhooks/slack/x", "/webhooks/%2e%2e/api/models", "/webhooks/slack/../../api/models",
        "/api/channels",
    ],
)  # fmt: skip
async def test_no_other_path_is_open(tmp_path: Path, path: str) -> None:
    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        answer = await service.stranger.post(path, content=QUESTION, headers=signed(QUESTION))
        assert answer.status_code == 401
        known = await service.client.post(path, content=QUESTION, headers=signed(QUESTION))
        assert known.status_code in {404, 405}


async def test_a_channel_that_connects_by_itself_has_no_webhook_route(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        assert (await service.stranger.post(SLACK, content=QUESTION)).status_code == 401
        answer = await service.client.post(SLACK, content=QUESTION)
        assert answer.status_code == 404
        assert answer.json() == {"detail": "This channel does not use webhooks."}


async def test_a_body_is_bounded_whatever_it_announces(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 100_000

    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        answer = await service.stranger.post(SLACK, content=endless())
        assert answer.status_code == 413
        assert "1,000,000 bytes" in answer.json()["detail"]
        assert (await service.stranger.get(SLACK)).status_code == 405


async def test_a_body_that_comes_slowly_is_given_up() -> None:
    asked: list[WebhookRequest] = []

    async def take(call: WebhookRequest) -> WebhookResponse:
        asked.append(call)
        return ACKNOWLEDGED

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep_forever()

    doors = WebhookApp()
    doors.webhooks["slack"] = WebhookEndpoint(handle=take, read_timeout_s=0.05)
    async with httpx.AsyncClient(transport=doors.transport, base_url="http://localhost") as client:
        answer = await client.post(SLACK, content=slow())
        assert (answer.status_code, answer.json()) == (
            408,
            {"detail": "The request body arrived too slowly."},
        )
        assert (await client.post(SLACK, content=b"{}", headers={"X-A": "b"})).status_code == 200
    (call,) = asked
    assert (call.body, call.headers["x-a"]) == (b"{}", "b")


async def test_a_platform_may_verify_the_url_by_get() -> None:
    async def echo(request: WebhookRequest) -> WebhookResponse:
        assert WORK_GROUP.get() == "wecom"
        return WebhookResponse(body=f"{request.method} {request.query['echostr']}".encode())

    app = WebhookApp()
    app.webhooks["wecom"] = WebhookEndpoint(handle=echo, methods=frozenset({"GET", "POST"}))
    app.webhooks["slack"] = WebhookEndpoint(handle=echo)
    async with httpx.AsyncClient(transport=app.transport, base_url="http://localhost") as client:
        query = {"echostr": "a b"}
        assert (await client.get("/webhooks/wecom", params=query)).text == "GET a b"
        refused = await client.get(SLACK, params=query)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_webhooks_of_a_channel_that_is_not_running_are_requested_again(
    tmp_path: Path,
) -> None:
    async with FakeSlack() as slack, composed(tmp_path, settings(slack)) as service:
        app = service.app
        transport = httpx.ASGITransport(app)
        await verified(service)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as late:
        answer = await late.post(SLACK, content=QUESTION, headers=signed(QUESTION))
    assert answer.status_code == 503


async def test_deliveries_are_no_admin_actions(tmp_path: Path) -> None:
    async with (
        FakeSlack() as slack,
        composed(tmp_path, settings(slack)) as service,
    ):
        await verified(service)
        await service.client.post("/api/channels/slack/restart")
        log = (tmp_path / "home" / "audit.log").read_text()
        assert "restart" in log
        assert "webhooks" not in log


@pytest.mark.parametrize("key", ["encrypt_key", "verification_token"])
async def test_feishu_does_not_start_without_its_secrets(tmp_path: Path, key: str) -> None:
    async with FakeFeishu() as feishu:
        given = {"encrypt_key": "key-of-feishu", "verification_token": "token-of-feishu", key: ""}
        section = {**feishu.settings, "mode": "webhook", **given}
        text = yaml.safe_dump({"channels": {"feishu": section}})
        async with composed(tmp_path, text) as service:
            answer = await service.client.get("/api/channels")
            told = answer.json()["channels"]["feishu"]
            assert (told["state"], told["running"]) == ("failed", False)
            assert told["detail"] == f"channels.feishu.{key} is not set"
            asked = json.dumps({"type": "url_verification", "token": "", "challenge": "c"})
            assert (await service.client.post("/webhooks/feishu", content=asked)).status_code == 404


@pytest.mark.parametrize("known", [[], ["BOT.example.com"]])
def test_a_host_that_would_be_refused_is_reported_at_the_start(
    tmp_path: Path, known: list[str]
) -> None:
    telegram = {
        "enabled": True,
        "bot_token": "1:a",
        "mode": "webhook",
        "webhook_url": "https://bot.example.com/webhooks/telegram",
        "webhook_secret": "webhook-secret-1",
    }
    file = tmp_path / "config.yaml"
    sections = {"channels": {"telegram": telegram}, "gateway": {"allowed_hosts": known}}
    file.write_text(yaml.safe_dump(sections))
    told = [
        hint for hint in config_hints(load_config(str(file), {})) if "gateway.allowed_hosts" in hint
    ]
    assert len(told) == (0 if known else 1)


def test_the_secrets_of_deliveries_are_kept_out_of_logs(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    sections = {
        "slack": {"signing_secret": "signing-secret-1"},
        "telegram": {"webhook_secret": "webhook-secret-1"},
        "feishu": {"encrypt_key": "encrypt-key-1", "verification_token": "verification-token-1"},
    }
    enabled = {name: {"enabled": True, **keys} for name, keys in sections.items()}
    file.write_text(yaml.safe_dump({"channels": enabled}))
    secrets = load_config(str(file), {}).secrets
    assert {value for section in sections.values() for value in section.values()} <= secrets
