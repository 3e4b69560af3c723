"""The contract's rigs for the three platforms that deliver over HTTP, through the gateway's route."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import httpx
from fastapi import FastAPI
from typing_extensions import override

from bots.common.webhooks import SupportsWebhook, WebhookEndpoint, webhook_path
from bots.slack.adapter import SlackAdapter
from bots.telegram.adapter import TelegramAdapter
from bus.platform import Adapter
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from gateway.routes import webhooks
from tests.bots import feishu_rig, slack_rig, telegram_rig
from tests.contracts.rigs import FeishuRig, SlackRig, TelegramRig
from tests.fakes.intake import RecordingIntake

HOST = "http://localhost"
TELEGRAM_SECRET = "telegram-webhook-secret"

SLACK = replace(slack_rig.FAST, check_s=0.05)
TELEGRAM = replace(telegram_rig.FAST, check_s=0.05)
FEISHU = replace(feishu_rig.QUICK, check_s=0.05)


class WebhookApp:
    """An application with only the gateway's route for deliveries."""

    def __init__(self) -> None:
        self.webhooks: dict[str, WebhookEndpoint] = {}
        app = FastAPI()
        app.state.services = self
        app.include_router(webhooks.router)
        self.transport = httpx.ASGITransport(app)

    def mount(self, adapter: Adapter) -> Adapter:
        """Pass deliveries to an adapter from now on."""
        assert isinstance(adapter, SupportsWebhook)
        assert adapter.webhook is not None
        self.webhooks[adapter.name] = adapter.webhook
        return adapter


def slack_over_http(slack: FakeSlack) -> dict[str, str]:
    """Return the settings that accept Slack's requests."""
    return {"mode": "http", "signing_secret": slack.events.secret, "app_token": ""}


class SlackHttpRig(SlackRig):
    """Signed requests."""

    @override
    def serving(self) -> AbstractAsyncContextManager[object]:
        self._doors = WebhookApp()
        self._slack = FakeSlack(ack_window_s=0.5, retries_s=(0.02,) * 200)
        self._slack.events.caller.url = HOST + webhook_path("slack")
        self._slack.events.caller.transport = self._doors.transport
        return self._slack

    @override
    def adapter(self) -> Adapter:
        config = slack_rig.config(self._slack, slack_over_http(self._slack))
        self._slack.call_at(HOST + webhook_path("slack"), self._doors.transport)
        return self._doors.mount(SlackAdapter(config, timeouts=SLACK))

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "xoxb-999-not-the-one"
        given = {**slack_over_http(self._slack), "bot_token": wrong}
        return SlackAdapter(slack_rig.config(self._slack, given), timeouts=SLACK), wrong

    @override
    async def go_away(self) -> None:
        self._slack.events.caller.away = True
        await super().go_away()

    @override
    async def come_back(self) -> None:
        self._slack.events.caller.away = False
        await super().come_back()


class TelegramWebhookRig(TelegramRig):
    """A webhook with a secret."""

    @override
    @asynccontextmanager
    async def serving(self) -> AsyncIterator[TelegramServer]:
        self._doors = WebhookApp()
        self._telegram.pusher.caller.transport = self._doors.transport
        async with self._telegram:
            yield self._telegram

    @override
    async def overtake(self, recorder: RecordingIntake) -> None:
        """Wait for the response to a request without the secret, because this fake delivers one update after
        another.
        """
        assert (await self._telegram.pusher.caller.post(b"{}", {})).status == 401

    def _made(self, token: str | None = None) -> Adapter:
        settings = {
            "mode": "webhook",
            "webhook_url": HOST + webhook_path("telegram"),
            "webhook_secret": TELEGRAM_SECRET,
        }
        config = telegram_rig.config_for(self._telegram, token=token).model_copy(update=settings)
        return TelegramAdapter(config, telegram_rig.COMMANDS, timeouts=TELEGRAM)

    @override
    def adapter(self) -> Adapter:
        return self._doors.mount(self._made())

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "700700:not-the-one"
        return self._made(wrong), wrong


class FeishuWebhookRig(FeishuRig):
    """Encrypted and signed requests."""

    @override
    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeFeishu]:
        self._doors = WebhookApp()
        self._feishu.poster.caller.url = HOST + webhook_path("feishu")
        self._feishu.poster.caller.transport = self._doors.transport
        async with self._feishu:
            yield self._feishu

    def _made(self, **settings: str) -> Adapter:
        post = self._feishu.poster
        keys = {"encrypt_key": post.encrypt_key, "verification_token": post.token}
        return feishu_rig.adapter_for(
            self._feishu, timeouts=FEISHU, mode="webhook", **{**keys, **settings}
        )

    @override
    def adapter(self) -> Adapter:
        self._feishu.call_at(HOST + webhook_path("feishu"), self._doors.transport)
        return self._doors.mount(self._made())

    @override
    def intruder(self) -> tuple[Adapter, str]:
        wrong = "not-the-right-secret"
        return self._made(app_secret=wrong), wrong

    @override
    async def go_away(self) -> None:
        self._feishu.poster.caller.away = True
        self._feishu.fail("bot.info", times=1_000_000, status=502, text="bad gateway")

    @override
    async def come_back(self) -> None:
        self._feishu.poster.caller.away = False
        self._feishu.state.failures.clear()
