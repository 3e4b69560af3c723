"""An HTTP transport to an ASGI application in this process that passes on each chunk when the application sends it.

httpx's own ASGI transport returns the response only after the application has finished, so tests could not follow
streams.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx
from starlette.types import ASGIApp, Message, Scope
from typing_extensions import override

BUFFERED_CHUNKS = 8
"""Unread chunks of a response before the application waits."""

CLOSE_S = 5.0
"""How long applications may take to finish after their clients disconnect, seconds."""


class StreamingASGITransport(httpx.AsyncBaseTransport):
    """Runs an application for each request. It receives `http.disconnect` when a response is closed early.

    Args:
        app: The application.
        client: The client address that the application sees.
    """

    def __init__(self, app: ASGIApp, *, client: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._app = app
        self._client = client
        self._open: dict[asyncio.Task[None], _Exchange] = {}

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(request)
        task = asyncio.create_task(exchange.run(self._app, _scope(request, self._client)))
        self._open[task] = exchange
        task.add_done_callback(self._open.pop)
        try:
            return await exchange.response()
        except BaseException:
            exchange.disconnect()
            raise

    @override
    async def aclose(self) -> None:
        tasks = list(self._open)
        for exchange in self._open.values():
            exchange.disconnect()
        with anyio.CancelScope(shield=True):
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=CLOSE_S)
                for task in late:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Exchange(httpx.AsyncByteStream):
    """One request, and its response as a stream of bytes."""

    def __init__(self, request: httpx.Request) -> None:
        self._body = _request_messages(request)
        self._timeout_s = (request.extensions.get("timeout") or {}).get("read")
        self._started = anyio.Event()
        self._gone = anyio.Event()
        self._start: Message | None = None
        self._failure: Exception | None = None
        self._has_ended = False
        self._chunks = asyncio.Queue[bytes | None](BUFFERED_CHUNKS)

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Call the application. Its error goes to the client's request."""
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - passed to the request's caller
            self._failure = error
        finally:
            self._started.set()
            await self._end()

    async def response(self) -> httpx.Response:
        try:
            with anyio.fail_after(self._timeout_s):
                await self._started.wait()
        except TimeoutError:
            raise httpx.ReadTimeout(f"No response within {self._timeout_s} s.") from None
        if self._start is None:
            raise self._failure or httpx.RemoteProtocolError("The application sent no response.")
        headers = self._start.get("headers", [])
        return httpx.Response(self._start["status"], headers=headers, stream=self)

    def disconnect(self) -> None:
        """Tell the application that its client disconnected. Anything that it still sends is dropped."""
        self._gone.set()
        while not self._chunks.empty():
            self._chunks.get_nowait()

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                with anyio.fail_after(self._timeout_s):
                    chunk = await self._chunks.get()
            except TimeoutError:
                self.disconnect()
                raise httpx.ReadTimeout(f"No data within {self._timeout_s} s.") from None
            if chunk is None:
                break
            yield chunk
        if self._failure is not None:
            raise httpx.ReadError("The response ended early.") from self._failure

    @override
    async def aclose(self) -> None:
        self.disconnect()

    async def _receive(self) -> Message:
        async for message in self._body:
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._started.set()
            return
        if chunk := bytes(message.get("body", b"")):
            await self._put(chunk)
        if not message.get("more_body", False):
            await self._end()

    async def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            await self._put(None)

    async def _put(self, chunk: bytes | None) -> None:
        if self._gone.is_set():
            await anyio.lowlevel.checkpoint()
        else:
            await self._chunks.put(chunk)


async def _request_messages(request: httpx.Request) -> AsyncIterator[Message]:
    """Yield a request's body: as one message if it is in memory, else chunk by chunk."""
    if isinstance(request.stream, httpx.ByteStream):
        yield {"type": "http.request", "body": request.read(), "more_body": False}
        return
    async for chunk in cast("AsyncIterator[bytes]", request.stream):
        yield {"type": "http.request", "body": chunk, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}


def _scope(request: httpx.Request, client: tuple[str, int]) -> dict[str, Any]:
    target, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": target,
        "query_string": query,
        "server": (request.url.host, request.url.port),
        "client": client,
        "root_path": "",
        "state": {},
    }
