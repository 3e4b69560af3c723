"""Signals over LISTEN and NOTIFY, on a separate connection with its own worker thread."""

import asyncio
import json
import logging
import math
import select
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

import psycopg
from typing_extensions import override

from store.errors import StoreUnavailable
from store.postgres.connection import Connection
from store.postgres.statements import PreparedStatements
from store.signals import Signals, TopicSubscribers, check_signal

INTERVAL_S = 0.002
"""Pause between two statements, seconds.

Signals that are published meanwhile go out with the next one. When a NOTIFY commits, it locks the whole server. Many in
one statement cost as much as one.
"""

MAX_PENDING = 10_000
"""Maximum number of signals that wait to be sent. Older ones are lost."""

MAX_BATCH = 500
"""Maximum number of signals in one statement."""

RECONNECT_S = 0.5
CLOSE_S = 5.0

_CHANNEL = "parley:"
_NOTIFY = (
    "SELECT pg_notify(signal ->> 0, signal ->> 1) FROM jsonb_array_elements(:signals) AS signal"
)

log = logging.getLogger(__name__)


class PostgresSignals(Signals):
    """Signals between the processes of a PostgreSQL database.

    The connection is opened on first use, and reopened after it breaks. Signals sent in between are lost.

    Args:
        connector: Returns a new connection, in autocommit mode; raises StoreUnavailable.
    """

    def __init__(self, connector: Callable[[], Connection]) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._subscribers = TopicSubscribers()
        self._pending: deque[tuple[str, str]] = deque(maxlen=MAX_PENDING)
        self._received: list[tuple[str, str]] = []
        self._topics: frozenset[str] = frozenset()
        self._missed: frozenset[str] = frozenset()
        self._closed = threading.Event()
        self._wake_end, self._wait_end = socket.socketpair()
        self._wake_end.settimeout(0)
        self._thread: threading.Thread | None = None

    @override
    def publish(self, topic: str, payload: str = "") -> None:
        check_signal(topic, payload)
        if not self._closed.is_set():
            self._pending.append((_CHANNEL + topic, payload.replace("\0", "\ufffd")))
            self._wake()

    @override
    def subscribe(self, topic: str) -> AbstractContextManager[AsyncIterator[str]]:
        check_signal(topic)
        return self._subscribe(topic)

    @contextmanager
    def _subscribe(self, topic: str) -> Iterator[AsyncIterator[str]]:
        try:
            with self._subscribers.subscribe(topic) as payloads:
                self._update_topics()
                yield payloads
        finally:
            self._update_topics()

    def _update_topics(self) -> None:
        topics = self._subscribers.topics()
        if topics != self._topics and not self._closed.is_set():
            self._topics = topics
            self._wake()

    def close(self) -> None:
        """Send what was published, end every subscription, close the connection. Blocks for up to `CLOSE_S`."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._subscribers.close()
        with suppress(BlockingIOError):
            self._wake_end.send(b"\0")
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._thread is None or not self._thread.is_alive():
            self._wake_end.close()
            self._wait_end.close()

    def _wake(self) -> None:
        """Wake the worker thread for new signals and subscriptions."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="database-signals", daemon=True
            )
            self._thread.start()
        with suppress(BlockingIOError):  # The thread has enough unread wake-ups.
            self._wake_end.send(b"\0")

    def _serve(self) -> None:
        """Exchange signals on a connection, and on a new one when it breaks, until `close`."""
        is_told = False
        while not self._closed.is_set():
            try:
                with closing(self._connector()) as connection:
                    self._exchange(connection)
                is_told = False
            except (psycopg.Error, StoreUnavailable, OSError) as error:
                if not is_told:
                    log.warning("Signals between processes are lost for now: %s", error)
                is_told = True
                self._pending.clear()
                self._missed = self._topics
                self._closed.wait(RECONNECT_S)

    def _exchange(self, connection: Connection) -> None:
        """Send and receive until `close`. Raises psycopg.Error and OSError when the connection breaks."""
        # psycopg passes on signals that arrive while a statement runs.
        connection.add_notify_handler(lambda one: self._note(one.channel, one.payload))
        statements = PreparedStatements(connection)
        statements.command(b"SET synchronous_commit = off")
        listening: frozenset[str] = frozenset()
        missed, self._missed = self._missed, frozenset[str]()
        sent_at = -math.inf
        while True:
            is_closed = self._closed.is_set()
            # Subscribe before sending. So a process that subscribes and then publishes receives its own signal.
            waiting = len(self._pending)
            topics = self._topics
            for topic in listening ^ topics:
                verb = "LISTEN" if topic in topics else "UNLISTEN"
                statements.command(f'{verb} "{_CHANNEL}{topic}"'.encode())
            listening = topics
            if missed:
                self._deliver([(topic, "") for topic in sorted(missed)])
                missed = frozenset()
            pause = sent_at + INTERVAL_S - time.monotonic()
            if waiting and (pause <= 0 or is_closed):
                self._send(statements, waiting)
                sent_at, pause = time.monotonic(), INTERVAL_S
            if is_closed:
                return
            self._receive(connection)
            self._wait(connection, pause if self._pending else None)

    def _send(self, statements: PreparedStatements, waiting: int) -> None:
        batch = [self._pending.popleft() for _ in range(min(waiting, MAX_BATCH))]
        statements.run(_NOTIFY, {"signals": json.dumps(batch)})

    def _receive(self, connection: Connection) -> None:
        """Pass on received signals."""
        while (notification := connection.pgconn.notifies()) is not None:
            self._note(notification.relname.decode(), notification.extra.decode())
        if self._received:
            received, self._received = self._received, []
            self._deliver(received)

    def _note(self, channel: str, payload: str) -> None:
        self._received.append((channel.removeprefix(_CHANNEL), payload))

    def _deliver(self, signals: list[tuple[str, str]]) -> None:
        with suppress(RuntimeError):  # The event loop is closed, so there are no subscribers.
            self._loop.call_soon_threadsafe(self._subscribers.deliver, signals)

    def _wait(self, connection: Connection, timeout_s: float | None) -> None:
        """Wait for a signal or a wake-up. `timeout_s`: None = no limit."""
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(self._wait_end, select.POLLIN)
        timeout_ms = None if timeout_s is None else math.ceil(max(timeout_s, 0) * 1000)
        for descriptor, _ in poll.poll(timeout_ms):
            if descriptor == self._wait_end.fileno():
                self._wait_end.recv(4096)
            else:
                connection.pgconn.consume_input()
        self._receive(connection)
