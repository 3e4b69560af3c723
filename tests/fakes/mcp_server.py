"""An MCP server built with the real SDK: `mcp_server.py stdio`, or `mcp_server.py http [PORT]`, which prints its port.

Over HTTP it serves `/mcp` (streamable), `/sse`, the same behind tokens at `/guarded/mcp`, and `/token`. After a request
to `/refuse`, it refuses the next one to `/mcp`.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP, Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 60

ACCESS_TOKEN = "mcp-access-token-5be1-"
"""Prefix of access tokens. A number follows."""


def haystack(half: int, needle: str) -> str:
    """Answer with a needle in the middle of 2 * half characters."""
    return "x" * half + needle + "y" * half


def session(context: Context[Any, Any, Any]) -> str:
    """Return the session of this call."""
    return str(id(context.session))


def trace(context: Context[Any, Any, Any]) -> str:
    """Return the trace context of this call."""
    return str(getattr(context.request_context.meta, "traceparent", ""))


def _add_tools(server: FastMCP, *tools: Callable[..., str]) -> None:
    for tool in tools:
        server.tool()(tool)


def build() -> FastMCP:
    """Return the server. Its state lives as long as its process."""
    server = FastMCP("fake", log_level="ERROR")
    remembered: list[str] = []

    @server.tool()
    def echo(text: str) -> str:
        """Return the text."""
        return text

    _add_tools(server, haystack, session, trace)

    @server.tool()
    def environment() -> str:
        """Return the variables of this process."""
        return json.dumps({"pid": os.getpid(), **os.environ})

    @server.tool()
    def remember(text: str) -> str:
        """Store a text and return all stored texts."""
        remembered.append(text)
        return ",".join(remembered)

    @server.tool(name="raise error")
    def failing() -> str:
        """Fail."""
        raise ValueError("no such issue")

    @server.tool()
    def crash() -> str:
        """End this process in the middle of a call."""
        sys.stderr.write("x" * 200_000)
        os._exit(3)

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        """Answer with a text and an image."""
        return ["a picture:", Image(data=PIXEL, format="png")]

    @server.tool()
    async def wait(marker: str) -> str:
        """Work forever, and write marks into a file."""
        file = anyio.Path(marker)
        await file.write_text("started")
        try:
            await anyio.sleep_forever()
        finally:
            Path(marker).write_text("cancelled")  # noqa: ASYNC240 - nothing may be awaited here
        return ""

    return server


class Tokens:
    """Issues tokens, and accepts requests with the newest one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._count = 0
        self._refuses_next = False
        self._asked: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/guarded"):
            headers = dict(scope["headers"])
            if headers.get(b"authorization") != f"Bearer {ACCESS_TOKEN}{self._count}".encode():
                await PlainTextResponse("who are you?", 401)(scope, receive, send)
                return
            path = scope["path"].removeprefix("/guarded")
            scope = {**scope, "path": path, "raw_path": path.encode()}
        if self._refuses_next and scope["path"] == "/mcp" and scope["method"] == "POST":
            self._refuses_next = False
            await PlainTextResponse("which session?", 400)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def token(self, request: Request) -> Response:
        form = dict(await request.form())
        self._asked.append(form)
        self._count += 1
        token = f"{ACCESS_TOKEN}{self._count}"
        return JSONResponse({"access_token": token, "token_type": "bearer", "expires_in": 3600})

    async def asked(self, request: Request) -> Response:
        if request.method == "DELETE":
            self._count += 1
        return JSONResponse(self._asked)

    async def refuse(self, _request: Request) -> Response:
        self._refuses_next = True
        return JSONResponse(None)


def serve_http() -> None:
    """Serve on a free port."""
    server = build()
    streamable, sse = server.streamable_http_app(), server.sse_app()
    tokens: list[Tokens] = []

    async def token(request: Request) -> Response:
        return await tokens[0].token(request)

    async def asked(request: Request) -> Response:
        return await tokens[0].asked(request)

    async def refuse(request: Request) -> Response:
        return await tokens[0].refuse(request)

    routes = [
        Route("/refuse", refuse, methods=["POST"]),
        Route("/token", token, methods=["POST"]),
        Route("/asked", asked, methods=["GET", "DELETE"]),
        *streamable.routes,
        *sse.routes,
    ]
    app = Starlette(routes=routes, lifespan=lambda _: server.session_manager.run())
    tokens.append(Tokens(app))
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
        listening.listen(128)
        print(listening.getsockname()[1], flush=True)  # noqa: T201
        config = uvicorn.Config(tokens[0], log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    else:
        build().run("stdio")
