"""Feishu's long connection: requests an endpoint, connects to its WebSocket, and receives events.

Each event is handled before it is acknowledged, within the 3 s that the platform waits. If an event cannot be handled,
the response is 500, and the platform resends the event. The SDK's client is not used, because it can exist only once in
a process, handles events one by one, and ends silently after an invalid response.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from bots.common.connection import ConnectionFailure
from bots.common.health import HealthTracker
from bots.feishu.errors import FeishuError
from bots.feishu.long_connection_session import (
    EventHandler,
    LongConnectionSession,
    ping_interval_s,
)
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.sdk import FrameCodec
from bots.feishu.timeouts import FeishuTimeouts
from bus.errors import unwrapped

_ENDPOINT = "/callback/ws/endpoint"
_MAX_FRAME_BYTES = 16 * 1024 * 1024

_BUSY_CODES = frozenset({1, 1000040343})
"""Temporary errors of the endpoint: the platform is busy, or has an internal error."""

_TOO_MANY = "1000040350"
"""`handshake-autherrcode` for an app that already has 50 connections, the maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongConnectionEndpoint:
    """Where to connect, and how often to ping. The URL contains a ticket, so never log it."""

    url: str
    service: int
    ping_s: float | None


class LongConnection:
    """Opens long connections. A process may have any number of them."""

    def __init__(
        self,
        *,
        app: FeishuApp,
        rest: FeishuRestClient,
        health: HealthTracker,
        timeouts: FeishuTimeouts,
    ) -> None:
        self._app = app
        self._rest = rest
        self._health = health
        self._timeouts = timeouts

    async def serve(self, codec: FrameCodec, handler: EventHandler) -> None:
        """Connect once and receive until the connection ends. See `ConnectionLoop`.

        Raises:
            ConnectionFailure: The connection failed.
        """
        endpoint = await fetch_endpoint(self._app, self._rest, self._timeouts)
        async with self._connected(endpoint.url) as socket:
            self._health.mark_connected()
            session = LongConnectionSession(
                socket,
                codec=codec,
                handler=handler,
                on_frame=self._health.mark_event,
                timeouts=self._timeouts,
                service=endpoint.service,
                ping_s=endpoint.ping_s or self._timeouts.ping_s,
            )
            with unwrapped():
                await session.run()

    @asynccontextmanager
    async def _connected(self, url: str) -> AsyncIterator[ClientConnection]:
        """Open the websocket. Send CLOSE at the end, because otherwise the platform keeps sending to it."""
        tls = self._rest.tls if url.startswith("wss:") else None
        proxy: Literal[True] | None = None if self._app.local else True
        try:
            with anyio.fail_after(self._timeouts.connect_s):
                socket = await _open(url, tls=tls, proxy=proxy, close_s=self._timeouts.close_s)
        except InvalidStatus as error:
            raise _handshake_error(error) from error
        except (OSError, InvalidHandshake, InvalidURI, TimeoutError, ImportError) as error:
            # ImportError: the environment names a SOCKS proxy, and the package for it is missing.
            raise ConnectionFailure(
                f"the long connection cannot be opened ({type(error).__name__})"
            ) from error
        try:
            yield socket
        finally:
            with anyio.move_on_after(self._timeouts.close_s, shield=True):
                await socket.close()


async def fetch_endpoint(
    app: FeishuApp, rest: FeishuRestClient, timeouts: FeishuTimeouts
) -> LongConnectionEndpoint:
    """Get the address for an app's connection without opening it.

    Raises:
        ConnectionFailure: Feishu gave no address.
    """
    secrets = {"AppID": app.app_id, "AppSecret": app.app_secret}
    try:
        with anyio.fail_after(timeouts.connect_s):
            answer = await rest.post_without_token(_ENDPOINT, secrets)
    except FeishuError as error:
        raise ConnectionFailure(f"{app.host}: {error}", retryable=not error.refused) from error
    except TimeoutError as error:
        raise ConnectionFailure(f"{app.host} did not answer in time") from error
    if answer.ok:
        return _parse_endpoint(answer.data)
    where = f"{app.host} (HTTP {answer.status}, code {answer.code})"
    if answer.code is None or answer.code in _BUSY_CODES:
        raise ConnectionFailure(f"no long connection at {where}")
    section = f"channels.{app.channel}"
    advice = f"check {section}.app_id, app_secret and domain, and that the app is published"
    raise ConnectionFailure(f"{where} refuses the app: {advice}", retryable=False)


async def _open(
    url: str, *, tls: ssl.SSLContext | None, proxy: Literal[True] | None, close_s: float
) -> ClientConnection:
    return await connect(
        url,
        open_timeout=None,
        close_timeout=close_s,
        max_size=_MAX_FRAME_BYTES,
        ssl=tls,
        proxy=proxy,
        # Not part of the logging tree, because the library logs the URL, which contains a ticket.
        logger=logging.Logger("feishu.websocket", level=logging.CRITICAL),  # noqa: LOG001
    )


def _parse_endpoint(data: Mapping[str, object]) -> LongConnectionEndpoint:
    url = data.get("URL")
    if not isinstance(url, str) or not url.startswith(("ws:", "wss:")):
        raise ConnectionFailure("Feishu returned no address for the long connection")
    service = parse_qs(urlsplit(url).query).get("service_id", [""])[0]
    return LongConnectionEndpoint(
        url=url,
        service=int(service) if service.isascii() and service.isdigit() else 0,
        ping_s=ping_interval_s(data.get("ClientConfig")),
    )


def _handshake_error(error: InvalidStatus) -> ConnectionFailure:
    headers = error.response.headers
    if headers.get("handshake-autherrcode") == _TOO_MANY:
        return ConnectionFailure(
            "the app already has 50 connections, the maximum: stop other instances", retryable=False
        )
    status = headers.get("handshake-status") or str(error.response.status_code)
    if status in {"403", "514"}:
        advice = "check its app_id and app_secret"
        return ConnectionFailure(
            f"Feishu refused the long connection (status {status}): {advice}", retryable=False
        )
    return ConnectionFailure(f"the long connection cannot be opened (status {status})")
