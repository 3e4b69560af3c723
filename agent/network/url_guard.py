"""Blocks requests to private networks for URLs that users or models choose (SSRF protection).

The check treats a URL exactly as the request will: it uses the same parser, does one DNS lookup and checks every
address, and the connection goes to one of these addresses. There is no second lookup that could return something else
(DNS rebinding). Redirects are checked like any other request.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from socket import SOCK_STREAM, gaierror, getaddrinfo
from typing import Any

import anyio
import httpx
from typing_extensions import override

from agent.errors import UnknownHost, UrlNotAllowed
from agent.network.addresses import Address, is_local_name, is_public, parse_ip_literal

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name to addresses, best first. Raises OSError if the name has none."""

LOOKUP_S = 5.0
"""Time limit of a lookup."""

MAX_LOOKUPS = 8
"""Maximum number of concurrent lookups; others wait. Lookups have their own worker threads, because a hanging lookup
keeps its thread after `LOOKUP_S`, and the default pool, which also resolves platforms and models, has few threads."""

MAX_URL_CHARS = 4096
MAX_PORT = 65_535
MAX_ADDRESSES = 4
"""Maximum number of addresses to try per name."""

_PORTS = {"http": 80, "https": 443}
_LOOKUPS = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="lookup")
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedUrl:
    """A URL that may be requested, and its checked addresses. Connect only to these addresses.

    Attributes:
        url: The URL, normalized.
        host: Its host, lower case, as ASCII.
        addresses: Its addresses, best first; never empty.
    """

    url: httpx.URL
    host: str
    addresses: tuple[str, ...]


async def resolve_host(
    host: str, port: int, *, lookup: Callable[..., list[Any]] = getaddrinfo
) -> Sequence[str]:
    """Resolve with the system's resolver. Raises OSError if there is no address."""
    call = partial(lookup, host, port, type=SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, call)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class UrlGuard:
    """Checks URLs.

    Args:
        allow_private_hosts: Names, addresses or networks (`10.1.0.0/16`) that are allowed even if they are not public.
            Only the operator sets them.
        resolve: Resolves names.
    """

    def __init__(
        self, *, allow_private_hosts: Iterable[str] = (), resolve: Resolver = resolve_host
    ) -> None:
        self._names: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in allow_private_hosts:
            try:
                self._networks.append(ip_network(entry.strip("[] "), strict=False))
            except ValueError:
                self._names.add(entry.strip().lower().rstrip("."))
        self._resolve = resolve

    async def check(self, url: str | httpx.URL) -> CheckedUrl:
        """Check a URL and return its addresses.

        Raises:
            UrlNotAllowed: The URL is malformed, is not http or https, contains a user name, or is not public.
            UnknownHost: The name cannot be resolved.
        """
        parsed = parse_url(url)
        host = _host_of(parsed)
        try:
            address = parse_ip_literal(host)
        except ValueError as error:
            raise UrlNotAllowed(
                f"The host is written in a notation that is not allowed: {host[:80]}"
            ) from error
        if address is None and _NAME.fullmatch(host) is None:
            raise UrlNotAllowed("The host of the URL is not a valid name.")
        if address is not None:
            self._require_allowed(host, address)
            return CheckedUrl(url=parsed, host=host, addresses=(str(address),))
        if is_local_name(host) and host not in self._names:
            raise UrlNotAllowed(f"Hosts in private networks are not allowed: {host[:80]}")
        addresses = await self._addresses(host, parsed.port or _PORTS[parsed.scheme])
        for found in addresses:
            self._require_allowed(host, found)
        return CheckedUrl(
            url=parsed, host=host, addresses=tuple(str(a) for a in addresses[:MAX_ADDRESSES])
        )

    async def _addresses(self, host: str, port: int) -> list[Address]:
        try:
            with anyio.fail_after(LOOKUP_S):
                found = [ip_address(text) for text in await self._resolve(host, port)]
        except (gaierror, OSError, ValueError) as error:  # OSError includes TimeoutError
            raise UnknownHost(f"The host name cannot be resolved: {host[:80]}") from error
        if not found:
            raise UnknownHost(f"The host name cannot be resolved: {host[:80]}")
        return found

    def _require_allowed(self, host: str, address: Address) -> None:
        if is_public(address) or host in self._names:
            return
        if any(address in network for network in self._networks):
            return
        # Do not show the address: the addresses of private names are confidential.
        raise UrlNotAllowed(f"Private and reserved addresses are not allowed: {host[:80]}")


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends every request to a checked address. The Host header, SNI and certificate check use the host name.

    Connections are not reused, because one that was opened for a host must not serve another host with the same
    address.
    """

    def __init__(self, guard: UrlGuard, tls: ssl.SSLContext) -> None:
        self._guard = guard
        self._wire = httpx.AsyncHTTPTransport(
            verify=tls, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        target = await self._guard.check(request.url)
        *others, last = target.addresses
        for address in others:
            try:
                return await self._wire.handle_async_request(_pinned(request, target, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue  # nothing was sent yet: try the next address
        return await self._wire.handle_async_request(_pinned(request, target, last))

    @override
    async def aclose(self) -> None:
        await self._wire.aclose()


def guarded_client(guard: UrlGuard, tls: ssl.SSLContext, *, timeout_s: float) -> httpx.AsyncClient:
    """Build a client that requests only URLs that the guard allows. The caller closes it.

    It uses no proxy, because a proxy would resolve names itself, and follows no redirects. Its requests also raise
    UrlNotAllowed.
    """
    return httpx.AsyncClient(
        transport=GuardedTransport(guard, tls),
        timeout=timeout_s,
        trust_env=False,
        follow_redirects=False,
    )


async def check_remote_fetch(guard: UrlGuard, url: str) -> None:
    """Check a URL that a remote service will fetch, so that no private address is sent to it.

    A name that cannot be resolved here passes. Behind a proxy, no name can be resolved here, but the remote service can
    resolve it.

    Raises:
        UrlNotAllowed: See `UrlGuard.check`.
    """
    try:
        await guard.check(url)
    except UnknownHost:
        return


def parse_url(url: str | httpx.URL) -> httpx.URL:
    """Parse an http or https URL.

    Raises:
        UrlNotAllowed: It is not such a URL, or contains a user name.
    """
    if len(str(url)) > MAX_URL_CHARS:
        raise UrlNotAllowed(f"The URL is longer than {MAX_URL_CHARS} characters.")
    try:
        parsed = httpx.URL(url.strip()) if isinstance(url, str) else url
    except (httpx.InvalidURL, ValueError) as error:
        raise UrlNotAllowed("This is not a valid URL.") from error
    if parsed.scheme not in _PORTS:
        raise UrlNotAllowed("Only http:// and https:// URLs are allowed; give the full URL.")
    if parsed.userinfo:
        raise UrlNotAllowed("URLs with a user name or password are not allowed.")
    if not parsed.host or (parsed.port is not None and not 0 < parsed.port <= MAX_PORT):
        raise UrlNotAllowed("The URL has no host, or an invalid port.")
    return parsed


def _host_of(url: httpx.URL) -> str:
    """Return the host of the request, lower case, without brackets and trailing dot."""
    return url.raw_host.decode("ascii").strip("[]").lower().rstrip(".")


def _pinned(request: httpx.Request, target: CheckedUrl, address: str) -> httpx.Request:
    """Return the request with the address in its URL. Keeps the Host header."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": target.host},
    )
