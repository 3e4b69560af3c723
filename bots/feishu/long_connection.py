"""Feishu's long connection, spoken on the one event loop.

The platform is asked for an address and answers with a websocket URL. Each event is handled first
and acknowledged then, within the 3 s that the platform waits; one that was not handled is answered
with 500 and comes again. The SDK's own client can exist once in a process, handles events one
after another and dies silently on a bad answer: hence this one.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from bots.feishu.errors import FeishuError
from bots.feishu.long_connection_session import (
    EventHandler,
    LongConnectionSession,
    SessionContext,
    ping_interval_s,
)
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.sdk import FrameCodec
from bots.feishu.timeouts import Backoff, FeishuTimeouts
from bots.feishu.vitals import Vitals

_ENDPOINT: Final = "/callback/ws/endpoint"
_MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

_BUSY_CODES: Final = frozenset({1, 1000040343})
"""Endpoint answers that mend themselves: the platform is busy, or has an internal error."""

_TOO_MANY: Final = "1000040350"
"""`handshake-autherrcode` of an app that holds its 50 connections already."""


class LongConnectionError(Exception):
    """No connection could be made.

    Attributes:
        detail: What is wrong and what to do; no secrets.
        refused: The platform refuses this app: a person has to act.
    """

    def __init__(self, detail: str, *, refused: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.refused = refused


@dataclass(frozen=True, slots=True, kw_only=True)
class LongConnectionEndpoint:
    """Where to connect to, and how often to ping there. The URL holds a ticket: never log it."""

    url: str
    service: int
    ping_s: float | None


class LongConnection:
    """Keeps one long connection open until cancelled; any number of them fit into one process."""

    def __init__(
        self, *, app: FeishuApp, rest: FeishuRestClient, vitals: Vitals, timings: FeishuTimeouts
    ) -> None:
        self._app = app
        self._rest = rest
        self._vitals = vitals
        self._timings = timings
        self._backoff = Backoff(timings)

    async def run(self, codec: FrameCodec, handler: EventHandler) -> None:
        """Connect, receive and reconnect for ever."""
        wiring = SessionContext(
            codec=codec, handler=handler, on_frame=self._on_frame, timings=self._timings
        )
        while True:
            try:
                await self._connect_once(wiring)
                error = LongConnectionError("the connection was closed")
            except LongConnectionError as failure:
                error = failure
            wait_s = self._timings.refused_s if error.refused else self._backoff.next_s()
            report = self._vitals.failed if error.refused else self._vitals.trying
            report(f"{error.detail}; trying again in {wait_s:.0f} s")
            await anyio.sleep(wait_s)

    async def _connect_once(self, wiring: SessionContext) -> None:
        """Connect once and stay until the connection ends.

        Raises:
            LongConnectionError: there was no connection.
        """
        address = await fetch_endpoint(self._app, self._rest, self._timings)
        ping_s = address.ping_s or self._timings.ping_s
        async with self._connected(address.url) as socket:
            self._vitals.connected()
            await LongConnectionSession(
                socket, wiring, service=address.service, ping_s=ping_s
            ).run()

    def _on_frame(self) -> None:
        self._backoff.reset()
        self._vitals.seen()

    @asynccontextmanager
    async def _connected(self, url: str) -> AsyncIterator[ClientConnection]:
        """Open the websocket; say CLOSE on the way out, else the platform keeps sending to a dead end."""
        tls = self._rest.tls if url.startswith("wss:") else None
        proxy: Literal[True] | None = None if self._app.local else True
        try:
            with anyio.fail_after(self._timings.connect_s):
                socket = await _open(url, tls=tls, proxy=proxy, close_s=self._timings.close_s)
        except InvalidStatus as error:
            raise _handshake_error(error) from error
        except (OSError, InvalidHandshake, InvalidURI, TimeoutError, ImportError) as error:
            # ImportError: a SOCKS proxy in the environment without the package for it.
            raise LongConnectionError(
                f"the long connection cannot be opened ({type(error).__name__})"
            ) from error
        try:
            yield socket
        finally:
            with anyio.move_on_after(self._timings.close_s, shield=True):
                await socket.close()


async def fetch_endpoint(
    app: FeishuApp, rest: FeishuRestClient, timings: FeishuTimeouts
) -> LongConnectionEndpoint:
    """Ask where an app may connect to; this opens no connection.

    Raises:
        LongConnectionError: there is no address now.
    """
    secrets = {"AppID": app.app_id, "AppSecret": app.app_secret}
    try:
        with anyio.fail_after(timings.connect_s):
            answer = await rest.post_without_token(_ENDPOINT, secrets)
    except FeishuError as error:
        raise LongConnectionError(f"{app.host}: {error}", refused=error.refused) from error
    except TimeoutError as error:
        raise LongConnectionError(f"{app.host} did not answer in time") from error
    if answer.ok:
        return _parse_endpoint(answer.data)
    where = f"{app.host} (HTTP {answer.status}, code {answer.code})"
    if answer.code is None or answer.code in _BUSY_CODES:
        raise LongConnectionError(f"no long connection at {where}")
    advice = "check channels.feishu.app_id, app_secret and domain, and that the app is published"
    raise LongConnectionError(f"the app is refused by {where}: {advice}", refused=True)


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
        # Outside the logging tree: the library logs the URL, and the URL holds a ticket.
        logger=logging.Logger("feishu.websocket", level=logging.CRITICAL),  # noqa: LOG001
    )


def _parse_endpoint(data: Mapping[str, object]) -> LongConnectionEndpoint:
    url = data.get("URL")
    if not isinstance(url, str) or not url.startswith(("ws:", "wss:")):
        raise LongConnectionError("Feishu named no address for the long connection")
    service = parse_qs(urlsplit(url).query).get("service_id", [""])[0]
    return LongConnectionEndpoint(
        url=url,
        service=int(service) if service.isascii() and service.isdigit() else 0,
        ping_s=ping_interval_s(data.get("ClientConfig")),
    )


def _handshake_error(error: InvalidStatus) -> LongConnectionError:
    headers = error.response.headers
    if headers.get("handshake-autherrcode") == _TOO_MANY:
        return LongConnectionError(
            "the app holds its 50 connections already: stop other instances", refused=True
        )
    status = headers.get("handshake-status") or str(error.response.status_code)
    if status in {"403", "514"}:
        advice = "check channels.feishu.app_id and app_secret"
        return LongConnectionError(
            f"the long connection is refused (status {status}): {advice}", refused=True
        )
    return LongConnectionError(f"the long connection cannot be opened (status {status})")
