"""HTTP proxy on this machine for programs that must obey the URL guard, such as a browser.

The proxy resolves names itself and connects to checked addresses only (`url_guard`). Every request goes through it,
including requests from redirects and scripts.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import httpx
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from agent.background import background_tasks
from agent.errors import AgentError
from agent.network.url_guard import CheckedUrl, UrlGuard

log = logging.getLogger(__name__)

HEAD_S = 30.0
"""Time limit for the head of a request, seconds."""

CONNECT_S = 10.0
"""Time limit for connecting to one address, seconds."""

MAX_HEAD_BYTES = 65_536
MAX_CONNECTIONS = 256

_END = b"\r\n\r\n"
_REPLACED_HEADERS = (b"proxy-", b"connection:", b"keep-alive:", b"host:")
_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
_BROKEN = b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"


class RequestRefused(Exception):
    """The request is malformed. The message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProxyRequest:
    """A request: the URL to check, and the head to send to its server. `head` is None for a tunnel (CONNECT)."""

    url: str
    head: bytes | None


@asynccontextmanager
async def guarded_proxy(guard: UrlGuard) -> AsyncIterator[str]:
    """Open a proxy. Yield its URL. Leaving the block closes all connections.

    Raises:
        OSError: It cannot listen.
    """
    slots = anyio.Semaphore(MAX_CONNECTIONS)

    async def serve(client: SocketStream) -> None:
        async with client, slots:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await _serve(client, guard)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, background_tasks() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
        yield f"http://127.0.0.1:{port}"


async def _serve(client: SocketStream, guard: UrlGuard) -> None:
    """Serve one connection: one request or one tunnel."""
    received = BufferedByteReceiveStream(client)
    try:
        with anyio.fail_after(HEAD_S):
            head = await received.receive_until(_END, MAX_HEAD_BYTES)
        request = _parse(head)
        target = await guard.check(request.url)
    except (TimeoutError, anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
        return
    except (AgentError, RequestRefused) as error:
        reason = error.user_message if isinstance(error, AgentError) else str(error)
        log.info("the browser's request was refused: %s", reason)
        await client.send(_FORBIDDEN % (len(reason.encode()), reason.encode()))
        return
    server = await _connect(target)
    if server is None:
        await client.send(_BROKEN)
        return
    async with server:
        await (client.send(_ESTABLISHED) if request.head is None else server.send(request.head))
        if received.buffer:
            await server.send(received.buffer)
        await _join(client, server)


def _parse(head: bytes) -> _ProxyRequest:
    r"""Parse the head of a request, without the empty line.

    Raises:
        RequestRefused: It is not a request to a proxy.

    >>> _parse(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443")
    _ProxyRequest(url='https://a.example:443/', head=None)
    >>> _parse(b"GET http://a.example:8080/x?y HTTP/1.1\r\nHost: ignored\r\nProxy-Connection: keep-alive\r\nA: b").head
    b'GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\nA: b\r\nConnection: close\r\n\r\n'
    """
    line, *headers = head.split(b"\r\n")
    try:
        method, target, version = line.split(b" ")
        text = target.decode("ascii")
        if method == b"CONNECT":
            return _ProxyRequest(url=f"https://{text}/", head=None)
        url = httpx.URL(text)
    except (ValueError, httpx.InvalidURL) as error:
        raise RequestRefused("This is not a valid request.") from error
    if url.scheme != "http":
        raise RequestRefused("Only http:// and https:// URLs are allowed.")
    kept = [one for one in headers if not one.lower().startswith(_REPLACED_HEADERS)]
    # Use the checked name, so that the request cannot reach another host behind the same address.
    sent = [b"%b %b %b" % (method, url.raw_path, version), b"Host: " + url.netloc, *kept]
    return _ProxyRequest(url=text, head=b"\r\n".join([*sent, b"Connection: close"]) + _END)


async def _connect(target: CheckedUrl) -> SocketStream | None:
    """Connect to the first of the checked addresses that answers."""
    port = target.url.port or {"http": 80, "https": 443}[target.url.scheme]
    for address in target.addresses:
        with suppress(OSError), anyio.move_on_after(CONNECT_S):
            return await anyio.connect_tcp(address, port)
    return None


async def _join(client: ByteStream, server: ByteStream) -> None:
    """Forward bytes in both directions until either side ends."""
    async with anyio.create_task_group() as tasks:

        async def pass_on(source: ByteStream, target: ByteStream) -> None:
            with suppress(
                OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError
            ):
                while True:
                    await target.send(await source.receive())
            tasks.cancel_scope.cancel()

        tasks.start_soon(pass_on, client, server)
        tasks.start_soon(pass_on, server, client)
