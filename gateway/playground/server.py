"""The playground's HTTP server: the page, its stream of changes, and the actions. Loopback only, with a token.

The token in the link becomes a cookie. Scripts send it as `Authorization: Bearer` instead.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import anyio
from aiohttp import web

from gateway.playground.model import MODEL_WEATHERS
from gateway.playground.ports import free_port
from gateway.playground.shown import WEATHERS, UnknownAction
from gateway.playground.simulation import Simulation

PAGE = Path(__file__).parent / "page"
CONSOLE = Path(__file__).parents[1] / "console_page"
"""The console's files. The page uses some of them."""

HOST = "127.0.0.1"
COOKIE = "parley_playground"
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SETTLE_S = 0.05
"""How long to collect changes before sending them to the page, seconds."""

TICK_S = 1.0
"""How often to send the page changes that come only with time, seconds, such as the end of a typing indicator."""

MAX_BODY_BYTES = 60_000_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PlaygroundServer:
    """Serves one simulation.

    Attributes:
        token: The token in the link.
        port: The port on which it listens.
    """

    def __init__(self, simulation: Simulation, port: int | None = None) -> None:
        self.token = token_urlsafe(18)
        self.port = port or free_port()
        self._simulation = simulation

    @property
    def url(self) -> str:
        """Its address, without the token."""
        return f"http://{HOST}:{self.port}"

    @property
    def link(self) -> str:
        """The address that opens the page."""
        return f"{self.url}/?token={self.token}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen inside the block. Raises OSError if the port is taken."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes([
            web.get("/", self._index),
            web.get("/api/stream", self._stream),
            web.get("/api/state", self._state),
            web.post("/api/actions", self._act),
            web.get("/api/recording", self._recording),
            web.get("/files/{platform}/{file:.+}", self._file),
            web.static("/page", PAGE),
            web.static("/console", CONSOLE),
            *self._simulation.model.routes(),
        ])  # fmt: skip
        runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, self.port, reuse_address=True).start()
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests without the token, and requests for other host names (DNS rebinding)."""
        if request.host not in {f"{HOST}:{self.port}", f"localhost:{self.port}"}:
            return web.Response(status=421, text="This is not the address of the playground.")
        if request.path.startswith(f"/model/{self._simulation.model.key}/"):
            return await handler(request)
        if not self._is_known(request):
            text = "Open the link that `parley playground` printed: it contains a token."
            return web.Response(status=401, text=text)
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _is_known(self, request: web.Request) -> bool:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        link = request.query.get("token", "") if request.path == "/" else ""
        given = bearer or link or request.cookies.get(self._cookie, "")
        return compare_digest(given.encode(), self.token.encode())

    @property
    def _cookie(self) -> str:
        return f"{COOKIE}_{self.port}"  # cookies ignore ports

    async def _index(self, request: web.Request) -> web.StreamResponse:
        if "token" not in request.query:
            return web.FileResponse(PAGE / "index.html")
        response = web.HTTPFound("/")
        response.set_cookie(self._cookie, self.token, httponly=True, samesite="Strict")
        raise response

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response({
            **self._simulation.view(),
            "entries": self._simulation.inspector.since(0),
            "weathers": {"platform": WEATHERS, "model": MODEL_WEATHERS},
        })  # fmt: skip

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Send server-sent events: the whole state first, then the changes."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        known: dict[str, str] = {}
        revision = 0
        while True:
            changed: dict[str, Any] = {}
            for name, value in _parts(self._simulation.view()):
                text = json.dumps(value, ensure_ascii=False)
                if known.get(name) != text:
                    known[name] = text
                    changed[name] = value
            entries = self._simulation.inspector.since(revision)
            revision = self._simulation.inspector.revision
            if entries:
                changed["entries"] = entries
            if changed or revision == 0:
                data = json.dumps(changed, ensure_ascii=False)
                await response.write(f"data: {data}\n\n".encode())
            with anyio.move_on_after(TICK_S):
                await self._simulation.changed.wait()
            await anyio.sleep(SETTLE_S)

    async def _act(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":  # Forms of other pages cannot send it.
            return _problem(415, "Send JSON.")
        try:
            action = await request.json()
            await self._simulation.act(action)
        except (ValueError, KeyError, AttributeError) as error:
            return _problem(400, f"This is no action: {error!r}")
        except UnknownAction as error:
            return _problem(409, str(error))
        return web.json_response({"success": True})

    async def _recording(self, _request: web.Request) -> web.Response:
        text = json.dumps(self._simulation.recording(), ensure_ascii=False, indent=1)
        disposition = {"Content-Disposition": 'attachment; filename="recording.json"'}
        return web.Response(text=text, content_type="application/json", headers=disposition)

    async def _file(self, request: web.Request) -> web.Response:
        platform = self._simulation.platforms.get(request.match_info["platform"])
        found = platform.file(request.match_info["file"]) if platform else None
        if found is None:
            raise web.HTTPNotFound
        _, mime, content = found
        # Never sent as a page, because content from people and models must not run here.
        is_picture = mime in {"image/png", "image/jpeg", "image/gif", "image/webp"}
        kind = mime if is_picture else "application/octet-stream"
        return web.Response(body=content, content_type=kind)


def _parts(view: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the parts of a view that change independently. The messages of each place are one part."""
    seen = view.pop("seen")
    return [*view.items(), *((f"seen {place}", value) for place, value in seen.items())]


def _problem(status: int, text: str) -> web.Response:
    return web.json_response({"detail": text}, status=status)
