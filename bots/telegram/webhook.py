"""The webhook: Telegram posts updates to the gateway, and learns that one is kept from the answer.

The address is registered with a secret at every start, and looked after: another program with the same token
may take it away, and what Telegram could not deliver shows in nothing else than its own word on the webhook.
"""

import hmac
import logging
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import anyio
from telegram import Bot, WebhookInfo
from telegram.error import BadRequest, TelegramError

from bots.common.keyed_lock import KeyedLock
from bots.common.webhooks import (
    ACKNOWLEDGED,
    RETRY_LATER,
    WebhookEndpoint,
    WebhookReceiver,
    WebhookRejected,
    WebhookRequest,
    WebhookResponse,
    parse_json_object,
    webhook_path,
)
from bots.config import TelegramConfig
from bots.telegram.api import (
    ALLOWED_UPDATES,
    MALFORMED,
    TelegramBot,
    TelegramTimeouts,
    redact_tokens,
)
from bots.telegram.capabilities import CHANNEL
from bots.telegram.failures import State, trouble_of
from bots.telegram.mentions import TelegramIdentity
from bots.telegram.setup import Backoff, get_identity, register_commands
from bots.telegram.updates import UpdateHandler, update_id_of
from bots.text.characters import clean
from bus.platform import CommandInfo, ConnectionState, Disposition, Intake

_LOG = logging.getLogger(__name__)

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""What Telegram takes as a secret (Bot API: setWebhook), at a length that nobody guesses."""

_CONNECTIONS: Final = 40
"""Deliveries that Telegram may make at once (Bot API: 1 to 100, 40 unless told)."""

_OFFICIAL: Final = "https://api.telegram.org/"

_HINTS: Final = {
    "401": " Another program set the webhook with a secret of its own: give it a bot of its own.",
    "404": f" channels.telegram.webhook_url has to lead to {webhook_path(CHANNEL)} of this gateway.",
    "421": " Add the host of channels.telegram.webhook_url to gateway.allowed_hosts.",
}


class _NotSet(Exception):
    """The webhook is not, or no more, ours; `link` says whether a person has to act."""

    def __init__(self, detail: str, link: ConnectionState) -> None:
        super().__init__(detail)
        self.detail = detail
        self.link = link


class TelegramWebhook:
    """Registers the webhook, keeps it, and takes what comes."""

    def __init__(
        self,
        state: State,
        config: TelegramConfig,
        commands: Sequence[CommandInfo],
        *,
        timing: TelegramTimeouts,
        allowed: Sequence[str] = ALLOWED_UPDATES,
    ) -> None:
        self._state = state
        self._config = config
        self._commands = commands
        self._timing = timing
        self._allowed = allowed
        self._lanes = KeyedLock()
        self._me: TelegramIdentity | None = None
        self._registered = False
        self._unkept = ""
        self._trouble = Backoff(timing)
        self._desk = WebhookReceiver(
            CHANNEL, timeout_s=timing.take_s, on_rejected=lambda _reason: None
        )
        self.webhook: Final = WebhookEndpoint(handle=self._desk.handle)

    async def run(self, bot: TelegramBot, intake: Intake, updates: UpdateHandler) -> None:
        """Receive until cancelled."""
        with self._desk.serving(partial(self._deliver, updates, intake)):
            while True:
                wait_s = await self._once(bot)
                await anyio.sleep(wait_s)

    async def _once(self, bot: TelegramBot) -> float:
        """Set the webhook and keep it while all is well; return how long to wait then, seconds."""
        try:
            await self._greet(bot)
            await self._watch(bot)
        except _NotSet as error:
            self._show(error.link, error.detail)
            failed = error.link is ConnectionState.FAILED
            return self._timing.refused_s if failed else self._trouble.next_s()
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            return self._note(error, bot)

    def _show(self, link: ConnectionState, detail: str = "") -> None:
        if self._state.set(link, detail) and detail:
            _LOG.warning("telegram: %s", detail)

    def _note(self, error: Exception, bot: TelegramBot) -> float:
        """Note a failure; return how long to wait, seconds."""
        where = bot.base_url.removesuffix(bot.token)
        trouble = trouble_of(error, base_url=where, refused_s=self._timing.refused_s)
        self._show(trouble.link, trouble.detail)
        return self._trouble.next_s() if trouble.retry_after_s is None else trouble.retry_after_s

    async def _greet(self, bot: Bot) -> None:
        """Learn who we are, set the webhook and list the commands."""
        with anyio.fail_after(3 * self._timing.total_s()):
            self._me = await get_identity(bot)
            try:
                await bot.set_webhook(
                    self._config.webhook_url,
                    secret_token=self._config.webhook_secret,
                    allowed_updates=self._allowed,
                    max_connections=_CONNECTIONS,
                    drop_pending_updates=False,
                )
            except BadRequest as error:
                said = redact_tokens(clean(error.message))[:200]
                detail = f"Telegram refuses channels.telegram.webhook_url: {said}."
                raise _NotSet(detail, ConnectionState.FAILED) from error
            if not self._registered:
                self._registered = await register_commands(bot, self._commands)

    async def _watch(self, bot: Bot) -> NoReturn:
        """Look at the webhook every now and then. Raises _NotSet when it is not ours any more."""
        while True:
            with anyio.fail_after(self._timing.total_s()):
                info = await bot.get_webhook_info()
            if info.url != self._config.webhook_url:
                raise _NotSet(
                    "Another program took the webhook away from this bot; setting it again.",
                    ConnectionState.RECONNECTING,
                )
            self._trouble.clear()
            detail = self._undelivered(info)
            if detail:
                self._show(ConnectionState.RECONNECTING, detail)
            elif not self._unkept:
                self._show(ConnectionState.CONNECTED)
            await anyio.sleep(self._timing.check_s)

    def _undelivered(self, info: WebhookInfo) -> str:
        """Return why Telegram cannot deliver, if something waits and nothing came since it failed."""
        failed_at, waiting = info.last_error_date, info.pending_update_count
        if failed_at is None or not waiting or self._unkept:
            return ""
        if (self._state.health.last_event_at or 0.0) > failed_at.timestamp():
            return ""
        said = redact_tokens(clean(info.last_error_message or "no reason told"))[:200]
        hint = next((hint for status, hint in _HINTS.items() if f" {status}" in said), "")
        return f"Telegram cannot deliver, {waiting} updates wait there: {said}.{hint}"

    async def _deliver(
        self, updates: UpdateHandler, intake: Intake, call: WebhookRequest
    ) -> WebhookResponse:
        given = call.headers.get("x-telegram-bot-api-secret-token", "")
        secret = self._config.webhook_secret
        if not hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode()):
            raise WebhookRejected("its secret token is missing or wrong")
        self._state.heard()
        raw = parse_json_object(call.body)
        update_id = update_id_of(raw)
        if update_id is None:
            intake.report_ignored(CHANNEL, Disposition.UNSUPPORTED, "an update without an id")
            return ACKNOWLEDGED
        if self._me is None:
            return RETRY_LATER  # Without our own name nobody's mention can be recognised.
        async with self._lanes.hold(_chat_of(raw)):
            self._unkept = await updates.handle(raw, update_id, self._me)
        if self._unkept:
            detail = f"Messages wait at Telegram: they are not accepted now ({self._unkept})."
            self._state.set(ConnectionState.CONNECTED, detail)
            return RETRY_LATER
        self._state.set(ConnectionState.CONNECTED)
        return ACKNOWLEDGED


def webhook_problem(config: TelegramConfig) -> str:
    """Return what is wrong with the webhook's settings; "" if nothing is."""
    if not config.webhook_url:
        return (
            "channels.telegram.webhook_url is not set: mode webhook takes the public address"
            f" that leads to {webhook_path(CHANNEL)} of this gateway."
        )
    wanted = ("https",) if config.base_url.startswith(_OFFICIAL) else ("https", "http")
    if urlsplit(config.webhook_url).scheme not in wanted:
        return "channels.telegram.webhook_url has to begin with https://."
    if not _SECRET.fullmatch(config.webhook_secret):
        return (
            "channels.telegram.webhook_secret is not set, or not 16 to 256 letters, digits, _ and -:"
            " mode webhook believes only deliveries that carry it."
        )
    return ""


def _chat_of(raw: dict[str, Any]) -> str:
    """Return the chat of an update, whatever its kind; updates of one chat are taken in their order."""
    for value in raw.values():
        if not isinstance(value, dict):
            continue
        inner = value.get("message")  # a callback query's
        for place in (value, inner):
            chat = place.get("chat") if isinstance(place, dict) else None
            if isinstance(chat, dict):
                return str(chat.get("id"))
    return ""
