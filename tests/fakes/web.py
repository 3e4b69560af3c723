"""Local web servers for tests: pages, and search and reader services, which record their requests."""

import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = """<!doctype html><html><head><title>A  page</title><style>p {}</style></head><body>
<nav>menu menu</nav><h1>Heading</h1><p>Some <b>bold</b> text and <a href="/x">a link</a>.</p>
<script>alert(1)</script><ul><li>one</li><li>two</li></ul><footer>imprint</footer></body></html>"""


@dataclass
class WebServer:
    """A running server.

    Attributes:
        port: Its port.
        host: Its address.
        routes: The response for each path. Other paths are 404.
        asked: (method, path, headers, JSON body or None) of every request.
    """

    port: int = 0
    host: str = "127.0.0.1"
    routes: dict[str, Handler] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address without trailing slash."""
        return f"http://{self.host}:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The requested paths, with their queries."""
        return [path for _, path, _, _ in self.asked]

    def answer(
        self,
        path: str,
        body: str | bytes | dict[str, Any] | list[Any] = "",
        *,
        status: int = 200,
        kind: str = "text/html",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Always respond to a path in the same way. An object is sent as JSON."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if isinstance(body, dict | list):
                return web.json_response(body, status=status, headers=headers)
            data = body.encode() if isinstance(body, str) else body
            given = {"Content-Type": kind, **(headers or {})} if kind else (headers or {})
            return web.Response(body=data, status=status, headers=given)

        self.routes[path] = handle

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        """Redirect a path."""
        self.answer(path, b"", status=status, headers={"Location": to})

    def endless(self, path: str, chunk: bytes, headers: dict[str, str] | None = None) -> None:
        """Respond to a path with endless chunks until the client disconnects."""

        async def handle(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/plain", **(headers or {})})
            await response.prepare(request)
            while True:
                await response.write(chunk)

        self.routes[path] = handle

    def hang(self, path: str) -> None:
        """Never respond to a path."""

        async def handle(request: web.Request) -> web.StreamResponse:
            await anyio.sleep_forever()
            raise web.HTTPServiceUnavailable

        self.routes[path] = handle

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.content_type == "application/json" else None
        self.asked.append((request.method, str(request.rel_url), dict(request.headers), body))
        handler = self.routes.get(request.path)
        return await handler(request) if handler else web.Response(status=404, text="nothing here")


def bomb(megabytes: int) -> bytes:
    """Return a few kilobytes of gzip that unpack to this many megabytes."""
    return gzip.compress(b"a" * (megabytes * 1_000_000))


@asynccontextmanager
async def web_server(
    host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[WebServer]:
    """Run a server on a free port, or on the given one."""
    served = WebServer(host=host)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served._handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, host, port, ssl_context=tls)
        await tcp.start()
        served.port = runner.addresses[0][1]
        yield served
    finally:
        await runner.cleanup()
