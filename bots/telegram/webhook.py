"""Webhook mode: Telegram posts updates to the gateway, and forgets an update after a response of 200.

The URL is registered with a secret at every start and checked every minute, because another program with the same token
may replace it, and only `getWebhookInfo` shows failed deliveries.
"""

import logging
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import anyio
from telegram import WebhookInfo
from telegram.error import BadRequest

from bots.common.connection import ConnectionFailure
from bots.common.health import HealthTracker, describe_refusal
from bots.common.keyed_lock import KeyedLock
from bots.common.webhooks import (
    ACKNOWLEDGED,
    RETRY_LATER,
    WebhookRejected,
    WebhookRequest,
    WebhookResponse,
    parse_json_object,
    secrets_match,
    webhook_path,
)
from bots.config import TelegramConfig
from bots.telegram.api import TelegramBot, TelegramTimeouts, redact_tokens
from bots.telegram.receiver import TelegramReceiver, update_id_of
from bots.telegram.update_queue import chat_of
from bus.characters import clean

log = logging.getLogger(__name__)

_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Secrets that Telegram accepts (Bot API: setWebhook) and that are too long to guess."""

_CONNECTIONS = 40
"""Maximum number of concurrent requests from Telegram (Bot API: 1 to 100, default 40)."""

_OFFICIAL = "https://api.telegram.org/"

_HINTS = {
    "401": " Another program set the webhook with its own secret: give it its own bot.",
    "404": " channels.{channel}.webhook_url must lead to {path} of this gateway.",
    "421": " Add the host of channels.{channel}.webhook_url to gateway.allowed_hosts.",
}


class TelegramWebhook:
    """Registers one bot's webhook, keeps it registered, and receives updates.

    Args:
        channel: Instance name.
        config: Its section.
        receiver: Handles updates.
        health: Shows the state of the connection.
        timeouts: Time limits.
        allowed: Kinds of updates.
    """

    def __init__(
        self,
        channel: str,
        config: TelegramConfig,
        receiver: TelegramReceiver,
        health: HealthTracker,
        *,
        timeouts: TelegramTimeouts,
        allowed: Sequence[str],
    ) -> None:
        self._channel = channel
        self._config = config
        self._receiver = receiver
        self._health = health
        self._timeouts = timeouts
        self._allowed = allowed
        self._chats = KeyedLock()
        self._refusal = ""

    async def prepare(self, bot: TelegramBot) -> None:
        """Register the webhook."""
        try:
            await bot.set_webhook(
                self._config.webhook_url,
                secret_token=self._config.webhook_secret,
                allowed_updates=self._allowed,
                max_connections=_CONNECTIONS,
                drop_pending_updates=False,
            )
        except BadRequest as error:
            reason = redact_tokens(clean(error.message))[:200]
            raise ConnectionFailure(
                f"Telegram refuses channels.{self._channel}.webhook_url: {reason}.", retryable=False
            ) from error

    async def receive(self, bot: TelegramBot) -> None:
        """Check the webhook periodically. Raises ConnectionFailure if it is no longer ours."""
        while True:
            with anyio.fail_after(self._timeouts.total_s()):
                info = await bot.get_webhook_info()
            if info.url != self._config.webhook_url:
                raise ConnectionFailure(
                    "Another program replaced this bot's webhook. Setting it again."
                )
            if detail := self._undelivered(info):
                self._health.mark_disconnected(detail)
            elif not self._refusal:
                self._health.mark_connected()
            await anyio.sleep(self._timeouts.check_s)

    def _undelivered(self, info: WebhookInfo) -> str:
        """Return why Telegram cannot deliver, if updates are waiting and none has arrived since the failure."""
        failed_at, waiting = info.last_error_date, info.pending_update_count
        if failed_at is None or not waiting or self._refusal:
            return ""
        if (self._health.health().last_event_at or 0.0) > failed_at.timestamp():
            return ""
        reason = redact_tokens(clean(info.last_error_message or "no reason given"))[:200]
        hint = next((hint for status, hint in _HINTS.items() if f" {status}" in reason), "")
        hint = hint.format(channel=self._channel, path=webhook_path(self._channel))
        return f"Telegram cannot deliver updates ({waiting} waiting): {reason}.{hint}"

    async def handle(self, request: WebhookRequest) -> WebhookResponse:
        """Handle one request (`WebhookReceiver.serving`)."""
        token = request.headers.get("x-telegram-bot-api-secret-token", "")
        if not secrets_match(token, self._config.webhook_secret):
            raise WebhookRejected("its secret token is missing or wrong")
        self._health.mark_event()
        raw = parse_json_object(request.body)
        update_id = update_id_of(raw)
        if update_id is None:
            log.info("telegram: ignored an update without an ID")
            return ACKNOWLEDGED
        if self._receiver.identity is None:
            return RETRY_LATER
        async with self._chats.hold(chat_of(raw)):
            self._refusal = await self._receiver.handle(raw, update_id)
        if self._refusal:
            self._health.mark_connected(describe_refusal(self._refusal))
            return RETRY_LATER
        self._health.mark_connected()
        return ACKNOWLEDGED


def webhook_problem(channel: str, config: TelegramConfig) -> str:
    """Return what is wrong with the webhook's settings; "" = nothing."""
    if not config.webhook_url:
        return (
            f"channels.{channel}.webhook_url is not set: mode webhook needs the public URL"
            f" that leads to {webhook_path(channel)} of this gateway."
        )
    wanted = ("https",) if config.base_url.startswith(_OFFICIAL) else ("https", "http")
    if urlsplit(config.webhook_url).scheme not in wanted:
        return f"channels.{channel}.webhook_url must begin with https://."
    if not _SECRET.fullmatch(config.webhook_secret):
        return (
            f"channels.{channel}.webhook_secret is not set, or not 16 to 256 letters, digits, _ and -:"
            " mode webhook accepts only requests that carry it."
        )
    return ""
