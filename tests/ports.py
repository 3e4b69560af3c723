"""Free ports for servers that need a port number, for example to restart on the same port."""

import os
import socket
from collections.abc import Iterator
from itertools import cycle, islice
from random import SystemRandom

from gateway.playground.ports import first_free

_PORTS = range(12_000, 32_000)
"""Above what the simulated platforms take, and below what Linux gives to outgoing connections and to servers that ask
for any port (net.ipv4.ip_local_port_range), so that nothing takes a port between the call and the server's start."""

_BLOCK = 250
"""Ports that one process reserves. No other process uses them for tests, not even another suite."""

_blocks: dict[int, Iterator[int]] = {}
"""Cycles through a process's ports. By process ID, because workers are forked."""


def free_port() -> int:
    """Return a free port of the loopback interface. Ports repeat only after 249 calls.

    Raises:
        OSError: All ports are taken.
    """
    process = os.getpid()
    if process not in _blocks:
        _blocks[process] = _take_block()
    return first_free(islice(_blocks[process], _BLOCK - 1))


def _take_block() -> Iterator[int]:
    """Reserve a block of ports. A socket holds the block's first port until the process ends."""
    blocks = _PORTS[::_BLOCK]
    for first in SystemRandom().sample(blocks, len(blocks)):
        with socket.socket() as mark:
            try:
                mark.bind(("127.0.0.1", first))
            except OSError:
                continue
            mark.detach()  # stays open on purpose
            return cycle(range(first + 1, first + _BLOCK))
    message = "no free ports: too many suites are running"
    raise OSError(message)
