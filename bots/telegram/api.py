"""The Bot API through python-telegram-bot, with time limits and HTTP statuses, and without tokens in logs."""

import io
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

import aiohttp
import anyio
import httpx
from telegram import Bot
from telegram.error import NetworkError, TelegramError, TimedOut
from telegram.request import BaseRequest, RequestData
from typing_extensions import override

from bots.common.proxy import proxy_url_for
from bots.config import TelegramConfig
from bots.telegram.capabilities import NOTICE_AFTER_S, PATCH_INTERVAL_S

ALLOWED_UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
"""Kinds of updates to receive. Every poll sends this list, because Telegram remembers the last one."""

DRAFT_UPDATES = ("stopped_message_generation",)
"""Additional kinds of updates if answers are shown as drafts (Bot API 10.3)."""

_TOKEN = re.compile(r"(?<=/bot)[^/\s\"']+")
"""A bot token in the path of a URL."""

_SENT = ("message_id", "date", "chat")
"""The fields to keep of a sent message."""

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)
"""Exceptions that parsing a malformed response or update may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTimeouts:
    """All timeouts and delays of the adapter, seconds.

    Attributes:
        poll_s: How long Telegram may hold a long poll open, in whole seconds.
        connect_s: Connecting, and getting a connection from the pool.
        answer_s: Waiting for a response to start, in addition to `poll_s` for a long poll.
        upload_s: Sending one chunk of a file, and processing the whole file.
        file_s: Sending a whole file (50 MB over a slow line).
        retry_min_s: First delay after a failure. It doubles with each further failure.
        retry_max_s: Longest such delay.
        failed_retry_s: Delay after Telegram refuses the token, which needs an operator.
        ack_s: Handling a webhook request.
        check_s: How often to check the webhook or, while polls return nothing, the number of waiting updates.
        notice_s, patch_s: See capabilities.py.
        indicator_s: Showing "typing" or a draft. The answer waits for such a call at most this long.
    """

    poll_s: int = 30
    connect_s: float = 5.0
    answer_s: float = 10.0
    upload_s: float = 60.0
    file_s: float = 300.0
    retry_min_s: float = 1.0
    retry_max_s: float = 60.0
    failed_retry_s: float = 60.0
    ack_s: float = 10.0
    check_s: float = 60.0
    indicator_s: float = 3.0
    notice_s: float = NOTICE_AFTER_S
    patch_s: float = PATCH_INTERVAL_S

    def total_s(self, *, waiting_s: float = 0.0) -> float:
        """Return the time limit of a whole call, seconds. Parts of the call have separate limits."""
        return 2 * self.connect_s + 2 * self.answer_s + waiting_s


class RetryAfterError(TelegramError):
    """Telegram asks to wait (HTTP 429)."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"Flood control: retry in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class UnexpectedStatus(TelegramError):
    """A response that does not come from the Bot API, such as a server error or a proxy's page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class TelegramTransport(BaseRequest):
    """The SDK's HTTP transport on aiohttp. Errors carry the HTTP status and never quote the body.

    A request takes a fifth of the CPU time of the SDK's own transport, which uses httpx (0.5 instead of 2.5 ms). That
    transport also drops the status of unknown errors, warns about its own `RetryAfter`, and copies unreadable bodies
    into error messages and logs. An error page may repeat the URL, which contains the token.

    Args:
        timeouts: The timeouts.
        tls: Certificates to trust.
        url: The API's address.
        connections: Maximum number of open connections. Further requests wait for one.
    """

    def __init__(
        self, timeouts: TelegramTimeouts, tls: ssl.SSLContext, *, url: str, connections: int
    ) -> None:
        self._timeouts = timeouts
        self._tls = tls
        self._url = url
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    @property
    @override
    def read_timeout(self) -> float:
        """Default time limit for a response, seconds."""
        return self._timeouts.answer_s

    @cached_property
    def _proxy(self) -> str | None:
        """The API's proxy, read once: reading the environment at each request costs 13% of a turn's function calls."""
        return proxy_url_for(self._url)

    @override
    async def initialize(self) -> None:
        """Open the session if it is not open."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._tls)
            self._session = aiohttp.ClientSession(connector=connector)

    @override
    async def shutdown(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @override
    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        *_args: object,
        **_timeouts: object,
    ) -> tuple[int, bytes]:
        """Send one request. Of the SDK's timeouts, only `read_timeout` is used. The others are the adapter's.

        Raises:
            RetryAfterError, UnexpectedStatus: See their docstrings.
            NetworkError, TimedOut: There was no response. The cause is aiohttp's exception.
        """
        data = request_data.json_parameters if request_data else None
        files = request_data.multipart_data if request_data else None
        read_s = read_timeout if isinstance(read_timeout, int | float) else self.read_timeout
        timeout = aiohttp.ClientTimeout(
            connect=self._timeouts.connect_s,
            # aiohttp counts from the first byte that it sends, and sending a file takes long.
            sock_read=self._timeouts.file_s if files else read_s,
        )
        try:
            async with self._open_session().request(
                method,
                url,
                data=_multipart(data or {}, files) if files else data,
                timeout=timeout,
                allow_redirects=False,
                proxy=self._proxy,
            ) as response:
                status, body = response.status, await response.read()
        except TimeoutError as error:
            raise TimedOut from error
        except (aiohttp.ClientError, OSError) as error:
            raise NetworkError(type(error).__name__) from error
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            _raise_for_status(status, body)
        return status, body

    @asynccontextmanager
    async def stream(
        self, url: str, *, read_timeout_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """GET a URL over the same connections.

        Yields the response with its unread body. Raises aiohttp.ClientError, TimeoutError.

        Args:
            url: The URL, which may contain the token.
            read_timeout_s: Longest pause in the response, seconds.
        """
        timeout = aiohttp.ClientTimeout(connect=self._timeouts.connect_s, sock_read=read_timeout_s)
        session = self._open_session()
        async with session.get(url, timeout=timeout, proxy=proxy_url_for(url)) as response:
            yield response

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("The transport is not initialized")
        return self._session

    @staticmethod
    @override
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Return the response's JSON object. Raises TelegramError if it is not one.

        Keeps only the identifying fields of a sent or edited message. The message may contain the message that it
        replies to, and the SDK raises if it does not know the form of that message. A sent answer would then count as
        uncertain.
        """
        answer = _json_object(payload)
        if answer is None:
            raise TelegramError("The answer is not JSON")
        sent = answer.get("result")
        if isinstance(sent, dict) and "message_id" in sent:
            answer["result"] = {name: sent[name] for name in _SENT if name in sent}
        return answer


class TelegramBot(Bot):
    """The SDK's bot, with unparsed updates, because one unreadable update must not hide the others."""

    @override
    def __repr__(self) -> str:
        """Return a name. The SDK's version would contain the token."""
        return "TelegramBot()"

    async def call_method(self, method: str, arguments: Mapping[str, object]) -> object:
        """Call a method that the SDK does not have, or with arguments that it does not have. Raises TelegramError."""
        return await self._post(method, dict(arguments))

    async def poll(
        self,
        offset: int | None,
        timeout_s: int,
        *,
        grace_s: float,
        allowed: Sequence[str] = ALLOWED_UPDATES,
    ) -> list[Any]:
        """Confirm the updates before `offset`. Return at most 100 of the following ones as JSON.

        Args:
            offset: ID of the first requested update; None = the oldest unconfirmed one.
            timeout_s: How long Telegram waits for an update, seconds; 0 = respond at once.
            grace_s: How much longer the response may take, seconds.
            allowed: Kinds of updates.

        Raises:
            TelegramError: There was no response, or a refusal.
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
    """The HTTP connections of one bot, open while they are in use.

    The bus still sends answers after the adapter's `run` has stopped, so neither of them can own the connections alone.
    The first user opens them, and the last one closes them.
    """

    def __init__(self, config: TelegramConfig, timeouts: TelegramTimeouts) -> None:
        self._timeouts = timeouts
        # Created once, because reading the certificates takes about 20 ms and the connections may be reopened.
        tls = httpx.create_ssl_context()
        self._polls = TelegramTransport(timeouts, tls, url=config.base_url, connections=2)
        self._calls = TelegramTransport(timeouts, tls, url=config.base_url, connections=64)
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
        """Yield the bot."""
        self._users += 1
        try:
            # If the transports are open, both calls return at once without awaiting.
            await self._polls.initialize()
            await self._calls.initialize()
            yield self._bot
        finally:
            self._users -= 1
            with anyio.CancelScope(
                shield=True, deadline=anyio.current_time() + self._timeouts.connect_s
            ):
                for transport in (self._polls, self._calls):
                    if not self._users:  # No new user appeared in the meantime.
                        await transport.shutdown()


def redact_sdk_logs() -> None:
    """Keep tokens and message texts out of the libraries' logs at every log level.

    httpx logs every URL at INFO, and a URL of the Bot API contains the token. The library itself logs base URLs and
    whole requests at DEBUG.
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


def _multipart(
    fields: Mapping[str, str], files: Mapping[str, tuple[str, Any, str]]
) -> aiohttp.FormData:
    form = aiohttp.FormData(fields, quote_fields=False)  # Telegram accepts unencoded names.
    for name, (filename, content, content_type) in files.items():
        # aiohttp sends a file object in chunks.
        part = io.BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(name, part, filename=filename, content_type=content_type)
    return form


def _raise_for_status(status: int, body: bytes) -> None:
    """Raise for failures other than a plain refusal (400, 401, 403, 404, 409 with a description)."""
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
