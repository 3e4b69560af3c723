"""How many requests a client may send: a bucket of tokens for each, refilled steadily."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

MAX_CLIENTS = 10_000
"""Buckets kept; beyond it the one that was used longest ago is forgotten, and with it what it had spent."""

IPV6_PREFIX_BITS = 64
"""Of an IPv6 address: whoever has one address of such a network has all of them."""


class RateLimitConfig(BaseModel):
    """The section `gateway.rate_limit`. A client is an address, and the token that it shows.

    Attributes:
        requests_per_s: What a client with the token may send in the long run; 0 = no limit.
        burst: What it may send at once.
        strangers_per_s: The same for an address without a token, or with a wrong one: who guesses is slowed down.
        strangers_burst: What it may send at once.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    requests_per_s: float = Field(default=1000.0, ge=0)
    burst: int = Field(default=2000, ge=1)
    strangers_per_s: float = Field(default=20.0, ge=0)
    strangers_burst: int = Field(default=1000, ge=1)


class ClientRateLimiter:
    """Tokens of many clients.

    Args:
        per_s: Tokens that come back each second; 0 = no limit.
        burst: The most a client can have, which is also what it begins with.
        clock: Seconds, never going back.
    """

    def __init__(
        self, *, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, client: str) -> float:
        """Take a token; 0 = the client had one, else in how many seconds it has one again.

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
    """Return whose requests those of an address are.

    >>> client_key("127.0.0.1"), client_key("2001:db8:1:2:3::4"), client_key("testclient")
    ('127.0.0.1', '2001:db8:1:2::/64', 'testclient')
    """
    if ":" not in address:
        return address
    try:
        return str(
            ipaddress.ip_network(f"{address.partition('%')[0]}/{IPV6_PREFIX_BITS}", strict=False)
        )
    except ValueError:
        return address
