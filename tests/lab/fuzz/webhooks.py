"""Targets: webhook requests of Slack and Telegram, from raw bodies and headers to messages of the bus."""

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import NoReturn
from urllib.parse import quote_plus

from bots.common.background import BackgroundTasks
from bots.common.greeting import Greeting
from bots.common.health import HealthTracker
from bots.common.webhooks import WebhookReceiver, WebhookRejected, WebhookRequest
from bots.config import SlackConfig, TelegramConfig
from bots.slack.api import SlackApi
from bots.slack.buttons import parse_button_press
from bots.slack.inbound import parse_event, parse_slash_command
from bots.slack.payload import find_installation
from bots.slack.webhook import SlackWebhook, parse_request, sign_request
from bots.telegram.api import TelegramTimeouts
from bots.telegram.receiver import TelegramReceiver
from bots.telegram.webhook import TelegramWebhook
from bus.config import ChannelPolicy
from tests.fakes.intake import RecordingIntake
from tests.lab.fuzz.mutation import damage_bytes, damage_json, to_json
from tests.lab.fuzz.platforms import (
    COMMANDS,
    NOW,
    SLACK,
    SLACK_EVENTS,
    TELEGRAM,
    TELEGRAM_UPDATES,
    meaning,
)
from tests.lab.fuzz.runner import Target

SECRET = "a-secret-of-the-fuzzer"
STRANGE = ("", "x", "0", "9" * 30, "\ud800", "ß", "v0=", "a" * 5000, "\x00")
"""Values of headers that no platform sends."""


def slack_webhook() -> SlackWebhook:
    return SlackWebhook(
        SlackApi(SlackConfig(), timeout_s=1.0),
        HealthTracker("slack"),
        WebhookReceiver("slack", timeout_s=1.0),
        channel="slack",
        secret=SECRET,
        now=lambda: NOW,
    )


def slack_request(rng: Random) -> WebhookRequest:
    """Return a damaged event, slash command or button press in Slack's form, with a valid or invalid signature."""
    payload = damage_json(rng, rng.choice(SLACK_EVENTS), SLACK_EVENTS)
    kind, body = "application/json", to_json(payload)
    if (form := rng.random()) < 0.3:
        kind, body = "application/x-www-form-urlencoded", b"payload=" + quote_plus(body).encode()
    elif form < 0.5 and isinstance(payload, Mapping):
        kind = "application/x-www-form-urlencoded"
        pairs = (f"{quote_plus(str(key), errors='replace')}={quote_plus(str(value), errors='replace')}"
                 for key, value in payload.items())  # fmt: skip
        body = "&".join(pairs).encode()
    body = damage_bytes(rng, body) if rng.random() < 0.5 else body
    now = perhaps_strange(rng, str(int(NOW)))
    right = sign_request(SECRET, now.encode("utf-8", "replace").decode(), body)
    headers = {
        "x-slack-request-timestamp": now,
        "x-slack-signature": perhaps_strange(rng, right, right.upper()),
        "content-type": perhaps_strange(rng, kind, "application/json; charset=x"),
        "x-slack-retry-num": perhaps_strange(rng, "1"),
        "x-slack-retry-reason": perhaps_strange(rng, "http_error"),
    }
    for name in rng.sample(list(headers), rng.choice((0, 0, 0, 0, 1, 2))):
        del headers[name]
    return WebhookRequest(headers=headers, body=body)


def perhaps_strange(rng: Random, value: str, *others: str) -> str:
    return value if rng.random() < 0.85 else rng.choice((*others, *STRANGE))


def slack_webhooks(rng: Random) -> str:
    """Every request must be refused unless its signature is valid."""
    request = slack_request(rng)
    try:
        signature, content = slack_webhook().verify(request)
        assert signature == sign_request(
            SECRET, request.headers["x-slack-request-timestamp"], request.body
        )
        parsed = parse_request(content)
    except WebhookRejected:
        return "refused"
    body = parsed.body
    assert isinstance(body, dict)
    find_installation(body, ["T1", "E1"])
    parse_button_press(body, SLACK)
    meaning(parse_slash_command(body, SLACK))
    return meaning(parse_event(body, SLACK))


async def no_greeting(*_: object, **__: object) -> NoReturn:
    raise AssertionError("greetings are switched off")


def telegram_webhook(intake: RecordingIntake) -> TelegramWebhook:
    receiver = TelegramReceiver(
        intake,
        COMMANDS,
        answer=lambda *_: None,
        stop_token=lambda *_: "",
        greeting=Greeting(
            ChannelPolicy(group_policy="disabled"), no_greeting, BackgroundTasks("telegram")
        ),
    )
    receiver.identity = TELEGRAM
    config = TelegramConfig(webhook_secret=SECRET)
    health = HealthTracker("telegram")
    return TelegramWebhook(
        "telegram", config, receiver, health, timeouts=TelegramTimeouts(), allowed=()
    )


def telegram_webhooks(rng: Random) -> str:
    """JSON with the right secret is acknowledged, because Telegram would otherwise repeat it forever."""
    body = to_json(damage_json(rng, rng.choice(TELEGRAM_UPDATES), TELEGRAM_UPDATES))
    body = damage_bytes(rng, body) if rng.random() < 0.5 else body
    token = perhaps_strange(rng, SECRET, SECRET.upper(), f"{SECRET} ")
    headers = {"x-telegram-bot-api-secret-token": token} if rng.random() < 0.95 else {}
    intake = RecordingIntake()
    request = WebhookRequest(headers=headers, body=body)
    try:
        response = asyncio.run(telegram_webhook(intake).handle(request))
    except WebhookRejected:
        assert not intake.offered
        return "refused"
    assert token == SECRET
    assert headers
    assert isinstance(json.loads(body), dict)
    assert response.status == 200, response.body
    return meaning(intake.received[0]) if intake.received else "other"


TARGETS = (
    Target(name="slack-webhooks", run=slack_webhooks),
    Target(name="telegram-webhooks", run=telegram_webhooks, weight=0.3),
)
