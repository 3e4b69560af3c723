"""Distinguishes public from private addresses and host names. Pure.

The networks are from IANA's special-purpose address registries (IPv4 and IPv6, October 2025), plus the few public
addresses at which clouds serve instance metadata.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_CLOSED_4 = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's wire server
        "169.254.0.0/16",  # link-local; metadata of most clouds at 169.254.169.254
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
        *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)

_OPEN_6 = ip_network("2000::/3")
"""Global unicast addresses. Excludes mapped and compatible IPv4, NAT64, local and multicast addresses."""

_CLOSED_6 = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID, benchmarking and other protocol assignments
        "2001:db8::/32",
        "2002::/16",  # 6to4, which contains an IPv4 address
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)

_LOCAL_ENDINGS = (
    *("localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp"),
    *("private", "home.arpa", "in-addr.arpa", "ip6.arpa", "onion", "invalid", "test"),
)
"""Domains without public servers, and domains that are resolved locally."""

_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)")


def is_public(address: Address) -> bool:
    """Return whether an address is public.

    >>> is_public(ip_address("93.184.216.34")), is_public(ip_address("169.254.169.254"))
    (True, False)
    >>> is_public(ip_address("::ffff:10.0.0.1"))
    False
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if address.scope_id is not None or address not in _OPEN_6:
        return False
    return not any(address in network for network in _CLOSED_6)


def parse_ip_literal(host: str) -> Address | None:
    """Return the address of a host in standard notation; None for a name.

    Raises:
        ValueError: The notation is non-standard (`127.1`, `0x7f000001`, `017700000001`), but resolvers accept it as an
            address.

    >>> parse_ip_literal("example.org") is None
    True
    >>> parse_ip_literal("2130706433")
    Traceback (most recent call last):
    ValueError: not an address in standard notation: 2130706433
    """
    try:
        return ip_address(host)
    except ValueError:
        last = host.rpartition(".")[2]
        if ":" in host or "%" in host or _NUMBER.fullmatch(last):
            raise ValueError(f"not an address in standard notation: {host[:80]}") from None
        return None


def is_local_name(name: str) -> bool:
    """Return whether a name (lower case, without trailing dot) belongs to this machine or its network.

    >>> is_local_name("metadata.google.internal"), is_local_name("kubernetes"), is_local_name("example.org")
    (True, True, False)
    """
    if "." not in name:
        return True
    return any(name.endswith(f".{ending}") for ending in _LOCAL_ENDINGS)
