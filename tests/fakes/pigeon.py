"""A chat server as docs/howto/add-a-platform.md describes it: repeats what was not read, drops repeated keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from aiohttp import web

WAIT_S = 0.2


@dataclass
class Pigeon:
    """The rooms: `said` by people, `shown` to them as (room, text)."""

    url: str = ""
    said: list[dict[str, object]] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)

    def say(self, room: str, text: str) -> None:
        self.said.append({"id": len(self.said) + 1, "room": room, "from": "ann", "text": text})

    async def until_shown(self, count: int) -> list[str]:
        with anyio.fail_after(30):
            while len(self.shown) < count:  # noqa: ASYNC110 - a condition of the other process
                await anyio.sleep(0.02)
        return [text for _, text in self.shown]

    async def updates(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        if not self.said[after:]:
            await anyio.sleep(WAIT_S)
        return web.json_response({"updates": self.said[after:]})

    async def send(self, request: web.Request) -> web.Response:
        if self.refusals:
            headers = {"Retry-After": "0"}
            return web.json_response({}, status=self.refusals.pop(0), headers=headers)
        body = await request.json()
        if body["key"] not in self.keys:
            self.keys[body["key"]] = len(self.shown) + 1
            self.shown.append((request.match_info["room"], body["text"]))
        return web.json_response({"id": self.keys[body["key"]]})


@asynccontextmanager
async def pigeon() -> AsyncIterator[Pigeon]:
    """Serve it on a loopback port."""
    server = Pigeon()
    app = web.Application()
    app.router.add_get("/updates", server.updates)
    app.router.add_post("/rooms/{room}/messages", server.send)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()
