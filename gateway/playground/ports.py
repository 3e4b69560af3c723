"""Ports for servers that take their port as a number, and may start again at it."""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from random import SystemRandom

_PORTS = range(10_000, 12_000)
"""These ports are below the range that Linux assigns to outgoing connections and to servers that ask for any port
(net.ipv4.ip_local_port_range). So nothing takes a port between the call and the server's start."""

_orders: dict[int, Iterator[int]] = {}
"""The ports in a random order for each process, by process ID. So two processes forked from the same one hardly ever
choose the same port at the same time."""


@contextmanager
def keep_port(port: int) -> Iterator[None]:
    """Keep others from listening on a port inside the block. Connections to it are refused."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", port))
        yield


def free_port() -> int:
    """Return a free port of the loopback interface. Each call returns another port.

    Raises:
        OSError: All ports of the range are taken.
    """
    process = os.getpid()
    if process not in _orders:
        _orders[process] = cycle(SystemRandom().sample(_PORTS, len(_PORTS)))
    return first_free(islice(_orders[process], len(_PORTS)))


def first_free(ports: Iterable[int]) -> int:
    """Return the first of some ports that nothing listens on.

    Raises:
        OSError: All are taken.
    """
    for port in ports:
        with socket.socket() as probe:
            # Servers also set this option: it ignores connections that ended a moment ago.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    message = "no free port"
    raise OSError(message)
