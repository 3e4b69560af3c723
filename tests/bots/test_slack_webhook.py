"""Slack over HTTP: which requests are accepted, the responses, and the channel's health."""

import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlencode

import anyio
import pytest

from bots.common.webhooks import WebhookEndpoint, WebhookRequest, WebhookResponse
from bots.slack.adapter import SlackAdapter
from bots.slack.connection import SlackTimeouts
from bots.slack.webhook import sign_request
from bus.errors import IntakeFull
from bus.platform import ConnectionState, Disposition
from gateway.playground.slack.server import FakeSlack
from tests.bots.slack_rig import FAST, config
from tests.fakes.intake import RecordingIntake

HTTP = replace(FAST, check_s=0.05)
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
CHALLENGE = b'{"type": "url_verification", "token": "t", "challenge": "c-1"}'


def message(text: str = "hello", event_id: str = "Ev1", *, user: str = "U1ANN") -> bytes:
    event = {
        "type": "message", "channel": f"D{user}", "channel_type": "im", "user": user, "text": text,
        "ts": "1700000000.000100",
    }  # fmt: skip
    envelope = {"type": "event_callback", "team_id": "T1TEAM", "event_id": event_id, "event": event}
    return json.dumps(envelope).encode()


def signed(slack: FakeSlack, body: bytes, *, ago_s: float = 0.0) -> dict[str, str]:
    made = slack.events.signed(body, at=time.time() - ago_s)
    return {name.lower(): value for name, value in made.items()}


@asynccontextmanager
async def running(
    slack: FakeSlack,
    intake: RecordingIntake,
    *,
    timeouts: SlackTimeouts = HTTP,
    given: Mapping[str, object] = {},
) -> AsyncIterator[tuple[SlackAdapter, WebhookEndpoint]]:
    """Run an adapter until the block ends; enter it when the adapter is signed in."""
    settings = {"mode": "http", "signing_secret": slack.events.secret, "app_token": "", **given}
    adapter = SlackAdapter(config(slack, settings), timeouts=timeouts)
    assert adapter.webhook is not None
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda task_status: adapter.run(intake, task_status=task_status))
        await slack.wait_for(lambda: "Waiting for Slack" in adapter.health().detail)
        yield adapter, adapter.webhook
        tasks.cancel_scope.cancel()


async def post(
    door: WebhookEndpoint, call: WebhookRequest, answers: list[WebhookResponse] | None = None
) -> None:
    answer = await door.handle(call)
    if answers is not None:
        answers.append(answer)


def test_the_signature_is_the_one_of_slacks_documents() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    known = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert sign_request("8f742231b10e8888abcd99yyyzzz85a5", "1531420618", body) == known


async def test_it_is_connected_once_slack_proved_itself() -> None:
    async with FakeSlack() as slack, running(slack, RecordingIntake()) as (adapter, door):
        before = adapter.health()
        assert before.state is ConnectionState.CONNECTING
        assert "/webhooks/slack" in before.detail
        answer = await door.handle(
            WebhookRequest(headers=JSON | signed(slack, CHALLENGE), body=CHALLENGE)
        )
        assert answer.status == 200
        assert json.loads(answer.body) == {"challenge": "c-1"}
        after = adapter.health()
        assert (after.state, after.detail) == (ConnectionState.CONNECTED, "")
        assert after.last_event_at is not None


async def test_a_request_url_is_verified_before_any_workspace_installed_the_app() -> None:
    """Slack sends events only to a verified URL, and the app can be installed only after that."""
    async with FakeSlack() as slack:
        settings = {
            "mode": "http",
            "signing_secret": slack.events.secret,
            "bot_token": "",
            "client_id": "1.2",
            "client_secret": "s",
        }
        adapter = SlackAdapter(config(slack, settings), timeouts=HTTP)
        door = adapter.webhook
        assert door is not None
        async with anyio.create_task_group() as tasks:
            intake = RecordingIntake()
            await tasks.start(lambda task_status: adapter.run(intake, task_status=task_status))
            await slack.wait_for(lambda: "No workspace" in adapter.health().detail)
            asked = WebhookRequest(headers=JSON | signed(slack, CHALLENGE), body=CHALLENGE)
            answer = await door.handle(asked)
            assert (answer.status, json.loads(answer.body)) == (200, {"challenge": "c-1"})
            said = WebhookRequest(headers=JSON | signed(slack, message()), body=message())
            assert (await door.handle(said)).status == 503
            forged = WebhookRequest(headers=JSON, body=CHALLENGE)
            assert (await door.handle(forged)).status == 401
            tasks.cancel_scope.cancel()


def wrong_headers(slack: FakeSlack, body: bytes) -> dict[str, dict[str, str]]:
    good = signed(slack, body)
    stamp, proof = "x-slack-request-timestamp", "x-slack-signature"
    other = hmac.new(b"another", b"v0:" + good[stamp].encode() + b":" + body, hashlib.sha256)
    return {
        "none": {},
        "no time": {proof: good[proof]},
        "no signature": {stamp: good[stamp]},
        "blank": {stamp: "", proof: ""},
        "another secret": good | {proof: f"v0={other.hexdigest()}"},
        "another time": good | {stamp: str(int(good[stamp]) - 1)},
        "another body": signed(slack, body + b" "),
        "five minutes old": signed(slack, body, ago_s=301),
        "from the future": signed(slack, body, ago_s=-360),
        "not a time": good | {stamp: "1e9"},
        "no version": good | {proof: good[proof].removeprefix("v0=")},
        "not ASCII": good | {proof: "v0=é\u2603"},
        "cut": good | {proof: good[proof][:-1]},
    }


async def test_requests_that_slack_did_not_sign_are_refused_before_they_are_read() -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, running(slack, intake) as (adapter, door):
        for body in (message(), b"{not json", b""):
            for name, headers in wrong_headers(slack, body).items():
                answer = await door.handle(WebhookRequest(headers=JSON | headers, body=body))
                assert (answer.status, answer.body) == (401, b'{"detail": "Refused."}'), name
        assert "channels.slack.signing_secret" in adapter.health().detail
        assert adapter.health().state is ConnectionState.CONNECTING
        await door.handle(WebhookRequest(headers=JSON | signed(slack, CHALLENGE), body=CHALLENGE))
        await door.handle(WebhookRequest(headers=JSON, body=message()))
        assert (adapter.health().state, adapter.health().detail) == (ConnectionState.CONNECTED, "")
    assert (intake.received, intake.ignored) == ([], [])


@pytest.mark.parametrize(
    "body", [b"[]", b'"x"', b"\xff\xfe", b"payload=%5B%5D", b"payload=nothing", b"", b"[" * 9000]
)
@pytest.mark.parametrize("kind", [JSON, FORM, {}])
async def test_an_unreadable_signed_request_affects_nothing(
    body: bytes, kind: dict[str, str]
) -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        answer = await door.handle(WebhookRequest(headers=kind | signed(slack, body), body=body))
        assert answer.status in {200, 400}
        good = message()
        assert (
            await door.handle(WebhookRequest(headers=JSON | signed(slack, good), body=good))
        ).status == 200
    assert intake.texts == ["hello"]


async def test_commands_are_taken_and_presses_acknowledged() -> None:
    intake = RecordingIntake()
    command = urlencode({
        "command": "/parley", "text": "status", "team_id": "T1TEAM", "channel_id": "C1", "user_id": "U1ANN",
        "trigger_id": "1.2", "response_url": "https://hooks.slack.com/x",
    }).encode()  # fmt: skip
    press = {"type": "block_actions", "user": {"id": "U1ANN"}, "actions": [{"action_id": "a"}]}
    pressed = urlencode({"payload": json.dumps(press)}).encode()
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        for body in (command, pressed):
            answer = await door.handle(
                WebhookRequest(headers=FORM | signed(slack, body), body=body)
            )
            assert answer.status == 200
    assert intake.texts == ["/status"]
    assert intake.ignored == [(Disposition.UNSUPPORTED, "a press of a button that is not ours")]


async def test_headers_that_are_not_signed_change_nothing() -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        body = message()
        lazy = {"x-slack-bolt-lazy-only": "1", "x-slack-bolt-lazy-function-name": "on_event"}
        answer = await door.handle(
            WebhookRequest(headers=JSON | lazy | signed(slack, body), body=body)
        )
        assert answer.status == 200
    assert intake.texts == ["hello"]


async def test_a_repeated_request_is_taken_once_and_a_retry_of_slacks_is_offered() -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        body = message()
        call = WebhookRequest(headers=JSON | signed(slack, body, ago_s=2), body=body)
        assert [(await door.handle(call)).status for _ in range(3)] == [200, 200, 200]
        retry = {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}
        again = WebhookRequest(headers=JSON | retry | signed(slack, body), body=body)
        assert (await door.handle(again)).status == 200
    assert [inbound.event_id for inbound in intake.received] == ["Ev1", "Ev1"]
    assert intake.ignored == [(Disposition.DUPLICATE, "a repeated request")] * 2


async def test_events_that_are_not_stored_are_requested_again() -> None:
    intake = RecordingIntake(errors=[IntakeFull(), RuntimeError("a defect")])
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        body = message()
        call = WebhookRequest(headers=JSON | signed(slack, body), body=body)
        assert [(await door.handle(call)).status for _ in range(3)] == [503, 503, 200]
    assert intake.texts == ["hello"]


async def test_events_that_are_stored_too_late_are_requested_again() -> None:
    intake = RecordingIntake()
    intake.gate = anyio.Event()
    async with FakeSlack() as slack:
        body = message()
        async with running(slack, intake, timeouts=replace(HTTP, ack_s=0.05)) as (adapter, door):
            call = WebhookRequest(headers=JSON | signed(slack, body), body=body)
            assert (await door.handle(call)).status == 503
        assert (await door.handle(call)).status == 503
        assert adapter.health().state is ConnectionState.STOPPED
    assert intake.received == []


async def test_a_stop_refuses_unfinished_requests() -> None:
    intake, answers = RecordingIntake(), list[WebhookResponse]()
    intake.gate = anyio.Event()

    async with (
        FakeSlack() as slack,
        anyio.create_task_group() as callers,
        running(slack, intake, timeouts=replace(HTTP, ack_s=60.0)) as (_, door),
    ):
        body = message()
        callers.start_soon(
            post, door, WebhookRequest(headers=JSON | signed(slack, body), body=body), answers
        )
        await slack.wait_for(lambda: intake.offered)
    assert [answer.status for answer in answers] == [503]


async def test_no_message_overtakes_another_of_its_chat() -> None:
    intake, held = RecordingIntake(), anyio.Event()
    intake.gate = held
    async with FakeSlack() as slack, running(slack, intake) as (_, door):
        first, second = message("first", "Ev1"), message("second", "Ev2")
        other = message("other", "Ev3", user="U2BOB")
        async with anyio.create_task_group() as callers:
            callers.start_soon(
                post, door, WebhookRequest(headers=JSON | signed(slack, first), body=first)
            )
            await slack.wait_for(lambda: intake.offered)
            intake.gate = None
            callers.start_soon(
                post, door, WebhookRequest(headers=JSON | signed(slack, second), body=second)
            )
            # It arrives after the second message, is in another chat, and does not wait.
            await post(door, WebhookRequest(headers=JSON | signed(slack, other), body=other))
            assert intake.texts == ["other"]
            held.set()
    assert intake.texts == ["other", "first", "second"]


async def test_a_revoked_token_shows_and_messages_are_kept_all_the_same() -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, running(slack, intake) as (adapter, door):
        await door.handle(WebhookRequest(headers=JSON | signed(slack, CHALLENGE), body=CHALLENGE))
        slack.server.bot_token = "xoxb-another"
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        assert "channels.slack.bot_token" in adapter.health().detail
        body = message()
        assert (
            await door.handle(WebhookRequest(headers=JSON | signed(slack, body), body=body))
        ).status == 200
        assert adapter.health().state is ConnectionState.FAILED
    assert intake.texts == ["hello"]


async def test_socket_mode_has_no_webhook_route() -> None:
    async with FakeSlack() as slack:
        assert SlackAdapter(config(slack), timeouts=FAST).webhook is None
