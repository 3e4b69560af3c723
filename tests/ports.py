"""Ports for servers that take their port as a number, and may start again at it."""

import os
from itertools import count
from random import SystemRandom

from gateway.playground.ports import first_free

_FIRST = 12_000
_PER_WORKER = 2_500
_WORKERS = 8
"""12,000 to 31,999: above what the simulated platforms take, and below what Linux gives to outgoing connections and to
servers that ask for any port (net.ipv4.ip_local_port_range), so that nothing takes a port between the call and the
server's start."""

_numbers = count(SystemRandom().randrange(_PER_WORKER))


def free_port() -> int:
    """Return a free port of the loopback interface, another one with each call.

    Raises:
        OSError: All ports of this process are taken.
    """
    worker = int(os.environ.get("PARLEY_TEST_WORKER", "0")) % _WORKERS
    first = _FIRST + worker * _PER_WORKER
    return first_free(first + next(_numbers) % _PER_WORKER for _ in range(_PER_WORKER))
