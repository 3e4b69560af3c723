"""Connects a chat in a terminal to the bot over HTTP. `gateway/terminal/local_client.py` connects it without HTTP."""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import httpx
from pydantic import TypeAdapter

from bus.retry import Backoff
from gateway.command_errors import CommandFailed
from gateway.service_client import error_detail
from gateway.terminal.attached_files import read_chunks
from gateway.terminal.session_events import (
    HEARTBEAT_S,
    SESSION_EVENT,
    SessionEvent,
    SessionJoined,
    SessionSummary,
)

CONNECTION_LOST = (
    "The connection to the service was lost: see its log, and run `parley chat` again."
)

_SESSIONS: TypeAdapter[list[SessionSummary]] = TypeAdapter(list[SessionSummary])

RECONNECT = Backoff(first_s=0.5, cap_s=30.0)
"""Delays between attempts to reach the service again, seconds."""


class MessageRefused(CommandFailed):
    """The service rejected a line or file. It may accept the next one."""


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """The connection to the service was lost or restored, as `text` says."""

    text: str


TerminalClientEvent = SessionEvent | ConnectionChange


class TerminalClient(Protocol):
    """A terminal chat's connection to the bot."""

    async def send(self, text: str, files: Sequence[Path] = (), *, line_id: str = "") -> str:
        """Send a line and files. Return the decision on it (a `bus.platform.Disposition`).

        `line_id`: the ID of the `TerminalLine` by which the session's terminals learn of it; "" = a new one.

        Raises:
            MessageRefused: The line or a file is rejected.
            CommandFailed: The connection to the bot is lost.
        """
        ...

    async def press(self, token: str, message: str) -> str:
        """Press a button of a message. Return the response to show; "" = none. Raises like `send`."""
        ...

    async def list_sessions(self) -> list[SessionSummary]:
        """Return the sessions, most recently used first. Raises like `send`."""
        ...

    def events(self) -> AsyncIterator[TerminalClientEvent]:
        """Iterate over the events to show. Raises CommandFailed when the connection is lost."""
        ...


class RemoteTerminalClient:
    """A session of a running service's terminal adapter.

    Args:
        client: The HTTP client of the service.
        name: The session.
        backoff: Delays between attempts to reach the service; None = give up at once.
    """

    def __init__(self, client: httpx.AsyncClient, name: str, backoff: Backoff | None) -> None:
        self._client = client
        self._path = f"channels/terminal/{name}"
        self._backoff = backoff
        self._stack = AsyncExitStack()
        self._lines: AsyncIterator[str]

    async def send(self, text: str, files: Sequence[Path] = (), *, line_id: str = "") -> str:
        """Send a line. If a retry sends it twice, the service accepts it once."""
        refs = [await self._attach(path) for path in files]
        body = {"text": text, "id": line_id or uuid.uuid4().hex, "files": refs}
        answer = await self._post("messages", lambda: {"json": body})
        if answer.is_error:
            raise MessageRefused(f"The service did not accept the message: {error_detail(answer)}")
        return str(answer.json()["result"])

    async def press(self, token: str, message: str) -> str:
        """Press a button. If a retry presses it twice, the service accepts it once."""
        body = {"token": token, "message": message, "id": uuid.uuid4().hex}
        answer = await self._post("presses", lambda: {"json": body})
        if answer.is_error:
            raise MessageRefused(f"The service did not accept the choice: {error_detail(answer)}")
        return str(answer.json()["text"])

    async def list_sessions(self) -> list[SessionSummary]:
        """Return the sessions, most recently used first."""
        try:
            answer = await self._client.get("channels/terminal")
        except httpx.HTTPError as error:
            raise MessageRefused(CONNECTION_LOST) from error
        if answer.is_error:
            raise MessageRefused(f"The service did not list the chats: {error_detail(answer)}")
        return _SESSIONS.validate_python(answer.json()["sessions"])

    async def events(self) -> AsyncIterator[TerminalClientEvent]:
        """Iterate over the events to show."""
        failures, has_joined = 0, False
        while True:
            try:
                async for line in self._lines:
                    if not line.startswith("data: "):
                        continue
                    event = SESSION_EVENT.validate_json(line.removeprefix("data: "))
                    if not (isinstance(event, SessionJoined) and has_joined):
                        yield event
                    has_joined = has_joined or isinstance(event, SessionJoined)
            except httpx.HTTPError:
                pass
            if not failures and self._backoff is not None:
                yield ConnectionChange("connection lost, trying to connect again")
            failures += 1
            await self._wait(failures)
            try:
                await self.connect()
            except (httpx.HTTPError, StopAsyncIteration):
                continue
            failures = 0
            yield ConnectionChange("connected again")

    async def connect(self) -> None:
        """Attach to the session. Raises CommandFailed if the service refuses, httpx.HTTPError if it is unreachable."""
        await self._stack.aclose()
        timeout = httpx.Timeout(10.0, read=3 * HEARTBEAT_S)
        request = self._client.stream("GET", f"{self._path}/events", timeout=timeout)
        answer = await self._stack.enter_async_context(request)
        if answer.is_server_error and self._backoff is not None:
            answer.raise_for_status()
        if answer.is_error:
            await answer.aread()
            raise CommandFailed(f"The service did not open the chat: {error_detail(answer)}")
        self._lines = answer.aiter_lines()
        await anext(self._lines)  # ": attached" means that no event is missed from here on

    async def close(self) -> None:
        """Leave the session."""
        await self._stack.aclose()

    async def _attach(self, path: Path) -> str:
        answer = await self._post(
            "files", lambda: {"params": {"name": path.name}, "content": read_chunks(path)}
        )
        if answer.is_error:
            raise MessageRefused(f"The service did not accept {path.name}: {error_detail(answer)}")
        return str(answer.json()["file"])

    async def _post(self, what: str, content: Callable[[], dict[str, Any]]) -> httpx.Response:
        """Repeat a request until the service answers. `content` creates its arguments for each attempt."""
        failures = 0
        while True:
            try:
                return await self._client.post(f"{self._path}/{what}", **content())
            except OSError as error:
                raise MessageRefused(f"The file cannot be read: {error}") from error
            except httpx.HTTPError as error:
                failures += 1
                await self._wait(failures, error)

    async def _wait(self, failures: int, error: Exception | None = None) -> None:
        if self._backoff is None:
            raise CommandFailed(CONNECTION_LOST) from error
        await anyio.sleep(self._backoff.wait_s(failures))


@asynccontextmanager
async def open_remote_client(
    client: httpx.AsyncClient, name: str, *, backoff: Backoff | None = None
) -> AsyncIterator[TerminalClient]:
    """Attach to a session of the service that `client` is connected to.

    Raises:
        CommandFailed: The service refuses.
    """
    remote = RemoteTerminalClient(client, name, backoff)
    try:
        try:
            await remote.connect()
        except (httpx.HTTPError, StopAsyncIteration) as error:
            raise CommandFailed(CONNECTION_LOST) from error
        yield remote
    finally:
        await remote.close()
