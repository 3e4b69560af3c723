"""The Bot API through python-telegram-bot: deadlines, HTTP statuses kept, no token in any log."""

import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from telegram import Bot
from telegram.error import TelegramError
from telegram.request import HTTPXRequest
from typing_extensions import override

from bots.config import TelegramConfig
from bots.telegram.capabilities import NOTICE_AFTER_S, PATCH_INTERVAL_S

ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
"""Kinds of updates to receive; Telegram remembers them, so they are sent with every poll."""

DRAFT_UPDATES = ("stopped_message_generation",)
"""Also received if answers are shown as drafts (Bot API 10.3)."""

_TOKEN = re.compile(r"(?<=/bot)[^/\s\"']+")
"""A bot token in the path of a URL."""

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)
"""What parsing a response or update of an unforeseen shape can raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTimeouts:
    """All timeouts and delays of the adapter, in seconds.

    Attributes:
        poll_s: How long Telegram may hold a long poll open (whole seconds).
        connect_s: To connect, and to get a connection from the pool.
        answer_s: For an answer to begin, beyond `poll_s` for a long poll.
        upload_s: For a piece of a file to be sent, and for the whole to be taken in.
        file_s: For a file altogether, 50 MB over a slow line.
        retry_min_s: First delay after a failure; it doubles with each further one.
        retry_max_s: Longest such delay.
        refused_s: Delay after a refused token, which needs the operator.
        take_s: For a webhook request to be handled.
        check_s: Between two checks of the webhook, or of the waiting updates while polls return nothing.
        notice_s, patch_s: See capabilities.py.
        sign_s: For indicators: "typing", a draft. The answer waits for them no longer.
    """

    poll_s: int = 30
    connect_s: float = 5.0
    answer_s: float = 10.0
    upload_s: float = 60.0
    file_s: float = 300.0
    retry_min_s: float = 1.0
    retry_max_s: float = 60.0
    refused_s: float = 60.0
    take_s: float = 10.0
    check_s: float = 60.0
    sign_s: float = 3.0
    notice_s: float = NOTICE_AFTER_S
    patch_s: float = PATCH_INTERVAL_S

    def total_s(self, *, waiting_s: float = 0.0) -> float:
        """Return the deadline of a whole call, whose parts have deadlines of their own."""
        return 2 * self.connect_s + 2 * self.answer_s + waiting_s


class RetryAfterError(TelegramError):
    """Telegram asks to wait (HTTP 429)."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"Flood control: retry in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class UnexpectedStatus(TelegramError):
    """A response that is not the Bot API's: a server error, or a proxy's page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class TelegramTransport(HTTPXRequest):
    """The SDK's HTTP transport, but errors keep their status and bodies are never quoted.

    The stock transport drops the status of what it does not know, warns about its own `RetryAfter`, and
    puts unreadable bodies into messages and logs; an error page may repeat the URL, which holds the token.
    """

    @override
    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        """Send one request; the arguments are the library's.

        Raises:
            RetryAfterError, UnexpectedStatus: as their docstrings say.
            NetworkError, TimedOut: no answer; the cause is httpx's exception.
        """
        status, body = await super().do_request(*args, **kwargs)
        if status >= httpx.codes.MULTIPLE_CHOICES:
            _raise_for_status(status, body)
        return status, body

    @asynccontextmanager
    async def stream(self, url: str, *, read_timeout_s: float) -> AsyncIterator[httpx.Response]:
        """GET an address over the same connections, its body unread. Raises httpx.HTTPError.

        Args:
            url: Where; it may hold the token.
            read_timeout_s: How long nothing may arrive.
        """
        async with self._client.stream("GET", url, timeout=read_timeout_s) as response:
            yield response

    @staticmethod
    @override
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Return the response's JSON object. Raises TelegramError if it is not one."""
        answer = _json_object(payload)
        if answer is None:
            raise TelegramError("The answer is not JSON")
        return answer


class TelegramBot(Bot):
    """The SDK's bot, with unparsed updates: one unreadable update must not hide the others."""

    @override
    def __repr__(self) -> str:
        """Return a name; the SDK's would contain the token."""
        return "TelegramBot()"

    async def call_method(self, method: str, arguments: Mapping[str, object]) -> object:
        """Call a method or pass arguments that the SDK does not know. Raises TelegramError."""
        return await self._post(method, dict(arguments))

    async def poll(
        self,
        offset: int | None,
        timeout_s: int,
        *,
        grace_s: float,
        allowed: Sequence[str] = ALLOWED_UPDATES,
    ) -> list[Any]:
        """Confirm the updates before `offset` and return the following ones, at most 100, as JSON.

        Args:
            offset: Id of the first update wanted; None = the oldest unconfirmed one.
            timeout_s: How long Telegram waits for something to happen; 0 = answer at once.
            grace_s: How much longer the answer may take.
            allowed: Kinds of updates.

        Raises:
            TelegramError: no answer, or a refusal.
        """
        updates = await self._post(
            "getUpdates",
            {"offset": offset, "timeout": timeout_s, "allowed_updates": allowed},
            read_timeout=timeout_s + grace_s,
        )
        if not isinstance(updates, Sequence):
            raise TelegramError("The answer to getUpdates is not a list")
        return list(updates)


class TelegramConnections:
    """The HTTP connections of one bot, open while somebody uses them.

    Answers are still sent after the adapter's `run` was stopped (the bus drains), so neither side alone
    can own the connections: they open with the first user and close with the last.
    """

    def __init__(self, config: TelegramConfig, timing: TelegramTimeouts) -> None:
        self._timing = timing
        # Made once: reading the certificates takes some 20 ms, and the connections may open again.
        tls = httpx.create_ssl_context()
        self._polls = _transport(timing, tls, connections=2)
        self._calls = _transport(timing, tls, connections=64)
        self._bot = TelegramBot(
            token=config.bot_token or "unset",
            base_url=config.base_url,
            base_file_url=config.base_file_url,
            get_updates_request=self._polls,
            request=self._calls,
        )
        self._users = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TelegramBot]:
        """Lend the bot."""
        self._users += 1
        try:
            # Both return at once when they are open, and never give up the event loop.
            await self._polls.initialize()
            await self._calls.initialize()
            yield self._bot
        finally:
            self._users -= 1
            with anyio.CancelScope(
                shield=True, deadline=anyio.current_time() + self._timing.connect_s
            ):
                for transport in (self._polls, self._calls):
                    if not self._users:  # Nobody came while the one before was closing.
                        await transport.shutdown()


def redact_sdk_logs() -> None:
    """Keep tokens and message texts out of the libraries' logs, whatever the level in force.

    httpx logs every URL at INFO, and a URL of the Bot API holds the token; the library itself logs base
    URLs and whole requests at DEBUG.
    """
    httpx_log = logging.getLogger("httpx")
    if httpx_log.level == logging.NOTSET:
        httpx_log.setLevel(logging.WARNING)
    httpx_log.addFilter(_redact)
    telegram_log = logging.getLogger("telegram")
    if telegram_log.level < logging.INFO:
        telegram_log.setLevel(logging.INFO)


def redact_tokens(text: str) -> str:
    """Return the text without bot tokens.

    >>> redact_tokens("https://api.telegram.org/bot123456:AAE-x/getMe")
    'https://api.telegram.org/bot<token>/getMe'
    """
    return _TOKEN.sub("<token>", text)


def _redact(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact_tokens(record.getMessage()), ()
    return True


def _transport(
    timing: TelegramTimeouts, tls: ssl.SSLContext, *, connections: int
) -> TelegramTransport:
    return TelegramTransport(
        connection_pool_size=connections,
        connect_timeout=timing.connect_s,
        pool_timeout=timing.connect_s,
        read_timeout=timing.answer_s,
        write_timeout=timing.answer_s,
        media_write_timeout=timing.upload_s,
        httpx_kwargs={"verify": tls},
    )


def _raise_for_status(status: int, body: bytes) -> None:
    """Raise for failures that are not a plain refusal (400, 401, 403, 404, 409 with a description)."""
    answer = _json_object(body)
    parameters = answer.get("parameters") if answer else None
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(wait, int | float) and wait > 0:
        raise RetryAfterError(float(wait))
    refused = status in {400, 401, 403, 404, 409}
    if not refused or answer is None or not isinstance(answer.get("description"), str):
        raise UnexpectedStatus(status)


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
