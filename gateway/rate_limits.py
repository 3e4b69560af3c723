"""Rate limits of requests: a token bucket for each client."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

MAX_CLIENTS = 10_000
"""Maximum number of buckets. Beyond it, the least recently used one is dropped."""

IPV6_PREFIX_BITS = 64
"""IPv6 clients are counted by network, because one host usually owns all of its addresses."""


class RateLimitConfig(BaseModel):
    """The section `gateway.rate_limit`: limits for each client address.

    Attributes:
        requests_per_s: Average rate with the token; 0 = unlimited.
        burst: Requests at once with the token.
        strangers_per_s: Average rate without a token or with a wrong one; 0 = unlimited.
        strangers_burst: Requests at once without a token or with a wrong one.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    requests_per_s: float = Field(default=1000.0, ge=0)
    burst: int = Field(default=2000, ge=1)
    strangers_per_s: float = Field(default=20.0, ge=0)
    strangers_burst: int = Field(default=1000, ge=1)


class ConnectionConfig(BaseModel):
    """The section `gateway.connections`.

    Attributes:
        max_total: Maximum number of open connections. Beyond it, connections without a complete request are closed
            first.
        max_per_client: Maximum number of open connections of one address.
        request_timeout_s: Time limit for the head of a request and for pauses in its body, seconds.
        write_timeout_s: How long a client may stop reading a response before it is disconnected, seconds.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    max_total: int = Field(default=1000, ge=16)
    max_per_client: int = Field(default=500, ge=8)
    request_timeout_s: float = Field(default=30.0, gt=0)
    write_timeout_s: float = Field(default=120.0, gt=0)


class ClientRateLimiter:
    """Token buckets of all clients.

    Args:
        per_s: Tokens added per second; 0 = unlimited.
        burst: Size of a bucket; it starts full.
        clock: Monotonic seconds.
    """

    def __init__(
        self, *, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, client: str) -> float:
        """Take a token. Return 0, or the seconds until the client gets the next one.

        >>> now = [0.0]
        >>> some = ClientRateLimiter(per_s=2, burst=2, clock=lambda: now[0])
        >>> [some.acquire("a"), some.acquire("a"), some.acquire("a"), some.acquire("b")]
        [0.0, 0.0, 0.5, 0.0]
        >>> now[0] = 0.5
        >>> some.acquire("a"), some.acquire("a")
        (0.0, 0.5)
        """
        if self._per_s <= 0:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.get(client, (self._burst, now))
        tokens = min(tokens + (now - since) * self._per_s, self._burst)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._per_s
        self._buckets[client] = (tokens if wait else tokens - 1, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait


def client_key(address: str) -> str:
    """Return the key under which an address is counted.

    >>> client_key("127.0.0.1"), client_key("2001:db8:1:2:3::4"), client_key("testclient")
    ('127.0.0.1', '2001:db8:1:2::/64', 'testclient')
    >>> client_key("::ffff:192.0.2.1")  # an IPv4 client of an IPv6 socket
    '192.0.2.1'
    """
    if ":" not in address:
        return address
    try:
        client = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if client.ipv4_mapped is not None:
        return str(client.ipv4_mapped)
    return str(ipaddress.ip_network((client, IPV6_PREFIX_BITS), strict=False))
