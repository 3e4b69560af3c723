"""How a chat in a terminal reaches the bot, over HTTP. The way in this process: `gateway/terminal/local_client.py`."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from gateway.command_errors import CommandFailed
from gateway.service_client import error_detail
from gateway.terminal.session_events import HEARTBEAT_S, SESSION_EVENT, SessionEvent

CONNECTION_LOST = (
    "The connection to the service was lost: see its log, and run `parley chat` again."
)


class TerminalClient(Protocol):
    """What a chat needs of the bot."""

    async def send(self, text: str) -> str:
        """Hand over a line; return what became of it (a `bus.platform.Disposition`). Raises CommandFailed."""
        ...

    def events(self) -> AsyncIterator[SessionEvent]:
        """Iterate over what is to be shown. Raises CommandFailed when the way is lost."""
        ...


class RemoteTerminalClient:
    """A session of a running service's terminal adapter."""

    def __init__(self, client: httpx.AsyncClient, lines: AsyncIterator[str], name: str) -> None:
        self._client = client
        self._lines = lines
        self._name = name

    async def send(self, text: str) -> str:
        """Hand over a line."""
        body = {"text": text, "id": uuid.uuid4().hex}
        try:
            answer = await self._client.post(f"channels/terminal/{self._name}/messages", json=body)
        except httpx.HTTPError as error:
            raise CommandFailed(CONNECTION_LOST) from error
        if answer.is_error:
            raise CommandFailed(f"The service did not take the message: {error_detail(answer)}")
        return str(answer.json()["result"])

    async def events(self) -> AsyncIterator[SessionEvent]:
        """Iterate over what is to be shown."""
        try:
            async for line in self._lines:
                if line.startswith("data: "):
                    yield SESSION_EVENT.validate_json(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            raise CommandFailed(CONNECTION_LOST) from error
        raise CommandFailed(CONNECTION_LOST)


@asynccontextmanager
async def open_remote_client(client: httpx.AsyncClient, name: str) -> AsyncIterator[TerminalClient]:
    """Attach to a session of the service that `client` speaks to.

    Raises:
        CommandFailed: the service does not let us.
    """
    timeout = httpx.Timeout(10.0, read=3 * HEARTBEAT_S)
    path = f"channels/terminal/{name}/events"
    async with client.stream("GET", path, timeout=timeout) as answer:
        if answer.is_error:
            await answer.aread()
            raise CommandFailed(f"The service does not open the chat: {error_detail(answer)}")
        lines = answer.aiter_lines()
        await anext(lines)  # ": attached": from here on nothing is missed
        yield RemoteTerminalClient(client, lines, name)
