"""A chat server as described in docs/howto/add-a-platform.md. It repeats unread events and drops repeated keys."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import anyio
from aiohttp import web

from tests.eventually import eventually

WAIT_S = 0.2


@dataclass
class ExamplePlatform:
    """The server of the fictional platform Acme.

    Attributes:
        events: People's actions, in order.
        shown: The visible messages, as (room, text).
        reactions: Added reactions, as (message, name), and removed ones, as (message, "-name").
        refusals: HTTP statuses of the next sends.
        down: Whether the server answers everything with 503.
    """

    url: str = ""
    events: list[dict[str, object]] = field(default_factory=list)
    shown: list[tuple[str, str]] = field(default_factory=list)
    reactions: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    down: bool = False

    def say(self, room: str, text: str) -> None:
        self.events.append({"id": len(self.events) + 1, "room": room, "from": "ann", "text": text})

    def add_bot(self, room: str) -> None:
        self.events.append({"id": len(self.events) + 1, "room": room, "added_by": "ann"})

    async def post(self, url: str, event: dict[str, object], token: str) -> int:
        """Call a webhook as this server does. Return the status."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=event, headers={"X-Acme-Token": token}) as response,
        ):
            return response.status

    async def until_shown(self, count: int) -> list[str]:
        await eventually(lambda: len(self.shown) >= count)
        return [text for _, text in self.shown]

    async def me(self, _request: web.Request) -> web.Response:
        return web.json_response({"name": "parley"}, status=503 if self.down else 200)

    async def updates(self, request: web.Request) -> web.Response:
        if self.down:
            return web.json_response({}, status=503)
        after = int(request.query["after"])
        if not self.events[after:]:
            await anyio.sleep(WAIT_S)
        return web.json_response({"updates": self.events[after:]})

    async def send(self, request: web.Request) -> web.Response:
        if self.refusals:
            headers = {"Retry-After": "0"}
            return web.json_response({}, status=self.refusals.pop(0), headers=headers)
        body = await request.json()
        if body["key"] not in self.keys:
            self.keys[body["key"]] = len(self.shown) + 1
            self.shown.append((request.match_info["room"], body["text"]))
        return web.json_response({"id": self.keys[body["key"]]})

    async def react(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        shown = name if request.method == "PUT" else f"-{name}"
        self.reactions.append((request.match_info["message"], shown))
        return web.json_response({})


@asynccontextmanager
async def example_platform() -> AsyncIterator[ExamplePlatform]:
    """Run the platform on a loopback port."""
    server = ExamplePlatform()
    app = web.Application()
    app.router.add_get("/me", server.me)
    app.router.add_get("/updates", server.updates)
    app.router.add_post("/rooms/{room}/messages", server.send)
    reaction = "/rooms/{room}/messages/{message}/reactions/{name}"
    app.router.add_put(reaction, server.react)
    app.router.add_delete(reaction, server.react)
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
