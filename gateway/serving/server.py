"""The HTTP server: uvicorn on a socket that is already open, stopped by us and not by signals."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from gateway.auth import MAX_BODY_BYTES

GRACE_PERIOD_S = 1
"""How long open requests may finish when the server stops; streams are cut then."""

KEEP_ALIVE_S = 75


class HttpServer(uvicorn.Server):
    """Serves one application."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="websockets-sansio",
                ws_max_size=MAX_BODY_BYTES,
                ws_per_message_deflate=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_PERIOD_S,
            )
        )
        self._listener = listener
        self.ready = anyio.Event()

    @override
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `gateway.serving.shutdown`."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve, and say so."""
        await super().startup(sockets)
        self.ready.set()

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called."""
        await self.serve([self._listener])

    def stop(self) -> None:
        """Take no new requests, give open ones `GRACE_PERIOD_S`, then end."""
        self.should_exit = True


class UvicornLogFilter(logging.Filter):
    """Drops what uvicorn calls errors and we do on purpose.

    Streams that are cut at a stop, and WebSockets that are refused with an answer in words: uvicorn sends
    the answer, and then takes it for none.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        return not any(alarm in said for alarm in _EXPECTED_MESSAGES)


_EXPECTED_MESSAGES = (
    "timeout graceful shutdown exceeded",
    "ASGI callable returned without completing handshake",
)
