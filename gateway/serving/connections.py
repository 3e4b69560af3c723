"""Limits network connections: their number, the time a request takes to arrive, and the time a client does not read.

A connection is either waiting (without a complete request head, or idle between requests) or serving. If there are too
many, waiting connections are closed first, then connections with slow clients (the body has not arrived, or the client
does not read), oldest first. So half-open connections cannot block others.
"""

import logging
import resource
import time
from asyncio import BaseTransport, Transport
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import anyio
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.rate_limits import ConnectionConfig, client_key

RESERVED_DESCRIPTORS = 256
"""File descriptors that connections leave free for the database, platforms, models and tools."""

ACCEPT_BATCH = 128
"""Number of connections to accept in a batch. The limits apply after each batch."""

MAX_DESCRIPTORS = 65_536
"""The process raises its file descriptor limit to this, if the hard limit allows it."""

MIN_CONNECTIONS = 16
"""Minimum number of connections, even if there are few file descriptors."""

MAX_HEAD_BYTES = 65_536
"""Largest head of a request, and largest trailers of a body, bytes. uvicorn would buffer any size."""

MAX_PIPELINED = 16
"""Maximum number of pipelined requests on a connection."""

MIN_READ_BYTES = 16_384
"""Bytes that a client must read within `write_timeout_s`. Otherwise it is disconnected."""

MAX_UNREAD_BYTES = 256 * 1024 * 1024
"""Maximum unread bytes of all clients' responses together. A single response may be larger."""

_SWEEP_S = 1.0
_HANDSHAKE = b"sec-websocket-"


class Connection:
    """One network connection.

    Attributes:
        is_serving: Whether a request is being answered, or the connection is a WebSocket.
        head_started_at: When the incomplete head of a request started to arrive; None = no such head.
        awaits_body: Whether the body of the current request is incomplete.
        write_paused_at: When the client fell behind with reading; None = it keeps up.
        unread_bytes: The unread bytes at that time.
    """

    def __init__(self, transport: Transport, client: str, now: float) -> None:
        self.transport = transport
        self.client = client
        self.is_serving = False
        self.head_started_at: float | None = now
        self.awaits_body = False
        self.write_paused_at: float | None = None
        self.unread_bytes = 0

    def pause_writing(self, now: float) -> None:
        """Record that the client fell behind with reading."""
        self.write_paused_at, self.unread_bytes = now, self.transport.get_write_buffer_size()

    @property
    def has_read(self) -> bool:
        """Whether the client has read `MIN_READ_BYTES` since it was last recorded as behind."""
        return self.unread_bytes - self.transport.get_write_buffer_size() >= MIN_READ_BYTES

    @property
    def is_slow(self) -> bool:
        """Whether a request in progress is waiting for its client."""
        return self.is_serving and (self.awaits_body or self.write_paused_at is not None)


class ConnectionLimiter:
    """All open connections of the HTTP server.

    Args:
        config: The limits.
        max_descriptors: The process's limit of file descriptors.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        config: ConnectionConfig,
        *,
        max_descriptors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        free = max_descriptors - RESERVED_DESCRIPTORS - ACCEPT_BATCH
        self._max = max(MIN_CONNECTIONS, min(config.max_total, free))
        self._config = config
        self._open: dict[Transport, Connection] = {}
        self._per_client: Counter[str] = Counter()
        self.clock = clock

    def open(self, transport: Transport) -> Connection:
        """Register a connection. Closes the oldest waiting or slow one if there are too many."""
        peer = transport.get_extra_info("peername")
        client = client_key(str(peer[0])) if isinstance(peer, tuple) else ""
        connection = Connection(transport, client, self.clock())
        if self._per_client[client] >= self._config.max_per_client:
            self._make_room(connection, lambda one: one.client == client)
        if len(self._open) >= self._max:
            self._make_room(connection, lambda _one: True)
        self._open[transport] = connection
        self._per_client[client] += 1
        return connection

    def find(self, transport: BaseTransport) -> Connection | None:
        """Return an open connection."""
        return self._open.get(cast("Transport", transport))

    def close(self, transport: BaseTransport) -> None:
        """Remove a connection. Does nothing if it is not open."""
        connection = self._open.pop(cast("Transport", transport), None)
        if connection is None:
            return
        self._per_client[connection.client] -= 1
        if not self._per_client[connection.client]:
            del self._per_client[connection.client]

    def set_serving(self, connection: Connection, *, serving: bool) -> None:
        """Record that a request begins or ends. Waiting connections are ordered by the start of their wait."""
        connection.is_serving = serving
        if not serving and self._open.pop(connection.transport, None) is not None:
            self._open[connection.transport] = connection

    def pause_writing(self, connection: Connection) -> None:
        """Record that a client fell behind with reading. If too much is unread, close the worst clients."""
        connection.pause_writing(self.clock())
        behind = [one for one in self._open.values() if one.write_paused_at is not None]
        unread = {one: one.transport.get_write_buffer_size() for one in behind}
        while len(unread) > 1 and sum(unread.values()) > MAX_UNREAD_BYTES:
            by_client: Counter[str] = Counter()
            for one, size in unread.items():
                by_client[one.client] += size
            most = by_client.most_common(1)[0][0]
            oldest = min(
                (one for one in unread if one.client == most),
                key=lambda one: one.write_paused_at or 0.0,
            )
            del unread[oldest]
            oldest.transport.abort()

    async def run(self) -> None:
        """Close connections that are too slow, until canceled."""
        timeouts = self._config.request_timeout_s, self._config.write_timeout_s
        while True:
            await anyio.sleep(min(_SWEEP_S, *(seconds / 4 for seconds in timeouts)))
            self.close_slow()

    def close_slow(self) -> None:
        """Close connections whose request does not arrive in time, and connections whose client does not read."""
        now = self.clock()
        for one in list(self._open.values()):
            is_late = not one.is_serving and _is_older(
                one.head_started_at, now - self._config.request_timeout_s
            )
            is_behind = _is_older(one.write_paused_at, now - self._config.write_timeout_s)
            if is_behind and one.has_read:
                one.pause_writing(now)  # a large response on a slow line
            elif is_late or is_behind:
                one.transport.abort()

    def _make_room(self, newcomer: Connection, wanted: Callable[[Connection], bool]) -> None:
        waiting = (one for one in self._open.values() if not one.is_serving and wanted(one))
        slow = (one for one in self._open.values() if one.is_slow and wanted(one))
        victim = next(waiting, None) or next(slow, newcomer)
        victim.transport.abort()
        self.close(victim.transport)


class TooManyPipelined(Exception):
    """A client keeps sending requests without waiting for responses. The parser answers with 400."""


class HeadTooLarge(Exception):
    """The head of a request or the trailers of its body are too large. The parser answers with 400."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with connection limits."""

    def __init__(self, *, limiter: ConnectionLimiter, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**options)
        self._limiter = limiter
        self._connection: Connection | None = None
        self._received = 0
        self._head_bytes = 0

    @override
    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._limiter.open(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limiter.close(self.transport)

    @override
    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection and not connection.is_serving and connection.head_started_at is None:
            connection.head_started_at = self._limiter.clock()
        self._received += len(data)
        super().data_received(data)
        if (
            self._received > MAX_HEAD_BYTES
        ):  # length of an incomplete piece of a head or of trailers
            self.transport.abort()

    @override
    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # the colon, a space and the end of the line
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Count bytes of a head or of trailers, in pieces of any size. Raises HeadTooLarge."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    @override
    def on_body(self, body: bytes) -> None:
        self._received = 0
        super().on_body(body)

    @override
    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()
        if self._connection is not None:
            self._connection.head_started_at = self._limiter.clock()

    @override
    def on_headers_complete(self) -> None:
        self._head_bytes = self._received = 0
        if self._connection is not None:
            self._connection.head_started_at = None
            self._connection.awaits_body = True
            self._limiter.set_serving(self._connection, serving=True)
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise TooManyPipelined

    @override
    def on_message_complete(self) -> None:
        self._received = 0
        super().on_message_complete()
        if self._connection is not None:
            self._connection.head_started_at = None
            self._connection.awaits_body = False

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._connection is not None and self.cycle.response_complete:
            self._limiter.set_serving(self._connection, serving=False)
            if self.cycle.more_body:
                self._connection.head_started_at = self._limiter.clock()

    @override
    def handle_websocket_upgrade(self) -> None:
        """Reject headers that RFC 6455 forbids. The websockets package would log an error for each of them."""
        if all(value.isascii() for name, value in self.headers if name.startswith(_HANDSHAKE)):
            super().handle_websocket_upgrade()
        else:
            self.send_400_response("The headers of a WebSocket are ASCII.")

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._connection is not None:
            self._limiter.pause_writing(self._connection)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection is not None:
            self._connection.write_paused_at = None


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with connection limits. The connection was opened as HTTP."""

    def __init__(self, *, limiter: ConnectionLimiter, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**options)
        self._limiter = limiter

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limiter.close(self.transport)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if (connection := self._limiter.find(self.transport)) is not None:
            self._limiter.pause_writing(connection)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if (connection := self._limiter.find(self.transport)) is not None:
            connection.write_paused_at = None


class RepeatedErrorFilter(logging.Filter):
    """Drops records that repeat an earlier one within `every_s` seconds, because a flood would fill the disk."""

    def __init__(
        self, *, every_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._last: dict[str, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text, now = str(record.msg).partition("\n")[0], self._clock()
        if now - self._last.get(text, -self._every_s) < self._every_s:
            return False
        self._last = {key: at for key, at in self._last.items() if now - at < self._every_s}
        self._last[text] = now
        return True


def raise_descriptor_limit() -> int:
    """Raise the process's file descriptor limit as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft if soft != resource.RLIM_INFINITY else MAX_DESCRIPTORS


def protocols(limiter: ConnectionLimiter) -> tuple[Any, Any]:
    """Return the HTTP and WebSocket protocols for uvicorn."""
    return (
        partial(LimitedHttpProtocol, limiter=limiter),
        partial(LimitedWebSocketProtocol, limiter=limiter),
    )


def _is_older(at: float | None, limit: float) -> bool:
    return at is not None and at < limit
