"""Signals: short messages between the processes that use one database.

A signal reaches all current subscribers of its topic, in every process including the sender's. Signals are never
stored, and any of them may be lost when a connection breaks or a subscriber is too slow. So correctness must depend on
rows alone; signals only save time.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from typing_extensions import override

MAX_PAYLOAD_BYTES = 7_900
"""PostgreSQL's NOTIFY takes 7,999 bytes."""

BUFFER_SIZE = 4_096
"""Maximum number of signals waiting for a subscriber. Further signals are lost."""

_TOPIC = re.compile(r"[a-z0-9_.:-]{1,50}")


class Signals(Protocol):
    """Sends and receives signals. For the event loop's thread."""

    def publish(self, topic: str, payload: str = "") -> None:
        """Send a signal to all subscribers of `topic`. Returns at once. Signals of one process arrive in order.

        Equal signals published within a few milliseconds may arrive as one.

        Args:
            topic: Up to 50 of a-z, 0-9, "_", ".", ":", "-".
            payload: Up to `MAX_PAYLOAD_BYTES` of UTF-8. Store longer content and send its id.

        Raises:
            ValueError: The topic or the payload is not valid.
        """
        ...

    def subscribe(self, topic: str) -> AbstractContextManager[AsyncIterator[str]]:
        """Receive the payloads of a topic's signals from now on. The iterator ends when the database is closed.

        After a broken connection is restored, the iterator yields one "", because signals may have been lost.

        Unless signals are lost, the iterator yields all those that this process publishes after the call, and those
        that others publish in response.

        Raises:
            ValueError: The topic is not valid.
        """
        ...


class TopicSubscribers:
    """The subscribers of this process, by topic."""

    def __init__(self) -> None:
        self._streams: dict[str, list[MemoryObjectSendStream[str]]] = defaultdict(list)

    def topics(self) -> frozenset[str]:
        """Return the topics that have subscribers."""
        return frozenset(self._streams)

    def deliver(self, signals: Iterable[tuple[str, str]]) -> None:
        """Pass signals (topic, payload) to their subscribers. A subscriber with a full buffer loses them."""
        for topic, payload in signals:
            for stream in self._streams.get(topic, ()):
                try:
                    stream.send_nowait(payload)
                except anyio.WouldBlock:
                    continue

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[AsyncIterator[str]]:
        """Receive the payloads of a topic until the context ends, or `close`."""
        send, receive = anyio.create_memory_object_stream[str](BUFFER_SIZE)
        streams = self._streams[topic]
        streams.append(send)
        try:
            yield receive
        finally:
            streams.remove(send)
            if not streams:
                self._streams.pop(topic, None)
            send.close()
            receive.close()

    def close(self) -> None:
        """End every subscription after its delivered signals are read."""
        for streams in self._streams.values():
            for stream in streams:
                stream.close()


class LocalSignals(Signals):
    """Signals inside the one process of a SQLite file."""

    def __init__(self) -> None:
        self._subscribers = TopicSubscribers()

    @override
    def publish(self, topic: str, payload: str = "") -> None:
        check_signal(topic, payload)
        self._subscribers.deliver([(topic, payload)])

    @override
    def subscribe(self, topic: str) -> AbstractContextManager[AsyncIterator[str]]:
        check_signal(topic)
        return self._subscribers.subscribe(topic)

    def close(self) -> None:
        """End every subscription."""
        self._subscribers.close()


def check_signal(topic: str, payload: str = "") -> None:
    """Raise ValueError if a signal is not valid.

    >>> check_signal("node:7", "{}")
    >>> check_signal("Node 7")
    Traceback (most recent call last):
    ...
    ValueError: 'Node 7' is not a topic of signals
    """
    if _TOPIC.fullmatch(topic) is None:
        raise ValueError(f"{topic!r} is not a topic of signals")
    if len(payload) > MAX_PAYLOAD_BYTES or len(payload.encode()) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"The payload of a signal takes at most {MAX_PAYLOAD_BYTES} bytes")
