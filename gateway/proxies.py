"""Supports reverse proxies in front of Parley: restores the client's address, and removes the path prefix."""

import ipaddress
from collections.abc import Awaitable, Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_HOPS = 20
"""Maximum number of addresses to read from X-Forwarded-For, starting with the last."""

_CONTENT_LOCATION = b"content-location"
_SCHEMES = {"http": "http", "https": "https"}


def parse_networks(entries: Sequence[str]) -> tuple[Network, ...]:
    """Return addresses and networks. Raises ValueError.

    >>> parse_networks(["10.0.0.1", "fd00::/8"])
    (IPv4Network('10.0.0.1/32'), IPv6Network('fd00::/8'))
    """
    return tuple(ipaddress.ip_network(entry, strict=False) for entry in entries)


class ProxyMiddleware:
    """Trusts the forwarding headers of trusted proxies, and of no other clients.

    From a trusted proxy, `X-Forwarded-For` and `X-Forwarded-Proto` replace the client's address and the scheme, so that
    rate limits and the audit log use the real client. The client is the last address that is not a trusted proxy's:
    earlier addresses come from the client and may be invented.

    Args:
        app: The application.
        trusted: Addresses and networks of the proxies.
        root_path: The path below which Parley is published, such as `/parley`; "" = at the root. It is removed from
            requests if the proxy has not removed it, and added to `Content-Location` in responses.
    """

    def __init__(self, app: ASGIApp, *, trusted: Sequence[str], root_path: str = "") -> None:
        self._app = app
        self._trusted = parse_networks(trusted)
        self._root = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        if self._is_trusted((scope.get("client") or ("",))[0]):
            self._use_forwarded(scope)
        if not self._root:
            await self._app(scope, receive, send)
            return
        _strip(scope, self._root)
        await self._app(scope, receive, lambda message: self._send(message, send))

    def _use_forwarded(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        hops = [
            hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")
        ]
        client = self._client(hops)
        if client:
            scope["client"] = (client, 0)
        scheme = _SCHEMES.get(headers.get("x-forwarded-proto", "").strip().lower())
        if scheme:
            secure = scheme == "https"
            plain = {"http": scheme, "websocket": "wss" if secure else "ws"}
            scope["scheme"] = plain[scope["type"]]

    def _client(self, hops: Sequence[str]) -> str:
        """Return the last address that is not a trusted proxy's; "" if there is none, or if it is not an address."""
        for hop in reversed(hops[-MAX_HOPS:]):
            address = _address(hop)
            if address is None:
                return ""
            if not self._is_trusted(address):
                return address
        return ""

    def _is_trusted(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._trusted)

    def _send(self, message: Message, send: Send) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, self._published(name, value)) for name, value in message["headers"]
            ]
        return send(message)

    def _published(self, name: bytes, value: bytes) -> bytes:
        if name.lower() == _CONTENT_LOCATION and value.startswith(b"/"):
            return self._root.encode() + value
        return value


def _strip(scope: Scope, root: str) -> None:
    """Remove the root path from a request's path."""
    path = scope["path"]
    if path != root and not path.startswith(f"{root}/"):
        return
    scope["path"] = path[len(root) :] or "/"
    raw = scope.get("raw_path")
    if raw and raw.startswith(root.encode()):
        scope["raw_path"] = raw[len(root) :] or b"/"


def _address(hop: str) -> str | None:
    """Return the address of a hop, which may include a port; None if it is not an address.

    >>> [_address(hop) for hop in ("192.0.2.1", "192.0.2.1:443", "[2001:db8::1]:443", "2001:db8::1", "unknown")]
    ['192.0.2.1', '192.0.2.1', '2001:db8::1', '2001:db8::1', None]
    """
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return None
