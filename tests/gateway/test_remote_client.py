"""A chat with a service that restarts: it reconnects, and no line is lost or sent twice."""

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from typing_extensions import override

from bots.terminal.session import TerminalMessage
from bus.retry import Backoff
from gateway.command_errors import CommandFailed
from gateway.terminal.remote_client import (
    CONNECTION_LOST,
    ConnectionChange,
    TerminalClientEvent,
    open_remote_client,
)
from gateway.terminal.session_events import SESSION_EVENT, SessionJoined

SOON = Backoff(first_s=0.01, cap_s=0.02)


class Service(httpx.AsyncBaseTransport):
    """A service whose connections break after each answer, and which is down for some requests."""

    def __init__(self, *answers: str) -> None:
        self.down = 0
        self.status = 200
        self.received: list[tuple[str, str]] = []
        self._answers = list(answers)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            self.down -= 1
            raise httpx.ConnectError("refused")
        if request.method == "POST":
            body = httpx.Response(200, content=await request.aread()).json()
            self.received.append((body["text"], body["id"]))
            return httpx.Response(202, json={"result": "accepted"})
        if self.status != 200:
            return httpx.Response(self.status, json={"detail": "no"})
        return httpx.Response(200, content=self._events())

    async def _events(self) -> AsyncIterator[bytes]:
        yield b": attached\n\n"
        if not self._answers:
            await anyio.sleep_forever()
        yield b"data: " + SESSION_EVENT.dump_json(SessionJoined(others=1)) + b"\n\n"
        text = self._answers.pop(0)
        event = TerminalMessage(id=text, text=text, final=True)
        yield b"data: " + SESSION_EVENT.dump_json(event) + b"\n\n"
        self.down = 3


def client_of(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=service, base_url="http://service/api/")


async def test_it_connects_again_with_growing_delays() -> None:
    seen: list[TerminalClientEvent] = []
    async with (
        client_of(Service("one", "two")) as http,
        open_remote_client(http, "main", backoff=SOON) as link,
    ):
        with anyio.fail_after(20):
            async for event in link.events():
                seen.append(event)
                if len(seen) == 7:
                    break
    texts = [event.text for event in seen if isinstance(event, TerminalMessage | ConnectionChange)]
    lost, again = "connection lost, trying to connect again", "connected again"
    assert texts == ["one", lost, again, "two", lost, again]
    # A client that reconnects has seen the earlier messages.
    assert [event for event in seen if isinstance(event, SessionJoined)] == seen[:1]


async def test_a_line_is_sent_until_the_service_takes_it_under_one_id() -> None:
    service = Service()
    async with client_of(service) as http, open_remote_client(http, "main", backoff=SOON) as link:
        service.down = 2
        assert await link.send("hello") == "accepted"
    assert [text for text, _ in service.received] == ["hello"]


async def test_a_script_gets_the_error_at_once() -> None:
    service = Service("one")
    async with client_of(service) as http:
        async with open_remote_client(http, "main") as link:
            with pytest.raises(CommandFailed, match=CONNECTION_LOST):
                _ = [event async for event in link.events()]
            service.down = 1
            with pytest.raises(CommandFailed, match=CONNECTION_LOST):
                await link.send("hello")
        service.down, service.status = 0, 403
        with pytest.raises(CommandFailed, match="did not open the chat"):
            async with open_remote_client(http, "main", backoff=SOON):
                pass
