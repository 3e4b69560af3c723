"""The HTTP server: uvicorn on an open socket, without its own signal handlers."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.config import Config as UvicornConfig
from uvicorn.server import Server as UvicornServer

from gateway.auth import MAX_BODY_BYTES
from gateway.middleware import API_GROUP
from gateway.rate_limits import ConnectionConfig
from gateway.serving.connections import (
    ACCEPT_BATCH,
    ConnectionLimiter,
    protocols,
    raise_descriptor_limit,
)
from store.work_group import WORK_GROUP

GRACE_PERIOD_S = 1
"""How long open requests may take to finish when the server stops, seconds. Then streams are cut off."""

KEEP_ALIVE_S = 75

# `uvicorn.lifespan` imports it from the package, whose `__init__` would import uvicorn's command.
vars(uvicorn)["Config"] = UvicornConfig


class HttpServer(UvicornServer):
    """Serves one application.

    Args:
        app: The application.
        listener: A listening socket.
        limits: Limits of connections; None = the defaults.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        limits: ConnectionConfig | None = None,
    ) -> None:
        self._limiter = ConnectionLimiter(
            limits or ConnectionConfig(), max_descriptors=raise_descriptor_limit()
        )
        http, websocket = protocols(self._limiter)
        super().__init__(
            UvicornConfig(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http=http,
                ws=websocket,
                backlog=ACCEPT_BATCH,
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
        """Start serving, and set `ready`."""
        # Connections and their requests' tasks inherit the group, including each task's first step before the
        # middleware.
        group = WORK_GROUP.set(API_GROUP)
        try:
            await super().startup(sockets)
        finally:
            WORK_GROUP.reset(group)
        self.ready.set()

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._limiter.run)
            await self.serve([self._listener])
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Stop accepting requests, and end after at most `GRACE_PERIOD_S`."""
        self.should_exit = True


class UvicornLogFilter(logging.Filter):
    """Drops error records of uvicorn about expected events.

    These events are streams cut off when the server stops, and WebSockets rejected with an HTTP response.
    """

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        said = f"{record.getMessage()}{error or ''}"
        return not any(alarm in said for alarm in _EXPECTED_MESSAGES)


_EXPECTED_MESSAGES = (
    "timeout graceful shutdown exceeded",
    "ASGI callable returned without completing handshake",
)
