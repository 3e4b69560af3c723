"""An HTTP transport that calls an ASGI application in this process and streams its responses.

httpx's own ASGI transport buffers the whole response, so a token stream would arrive only at its end.
This one passes on each chunk as it is sent; the application blocks while the buffer is full.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.types import ASGIApp, Message, Scope
from typing_extensions import override

MAX_BUFFERED_CHUNKS = 8
"""Unread chunks of a response before the application blocks."""

CLOSE_TIMEOUT_S = 5.0
"""How long applications have to finish after their clients disconnect when the transport closes, seconds."""

_SPEC_VERSION = "2.3"
"""As in uvicorn: `receive` reports a disconnected client; `send` does not raise."""


class StreamingASGITransport(httpx.AsyncBaseTransport):
    """Runs an ASGI application for each request of an `httpx.AsyncClient`.

    Enter the client (or the transport) with `async with`: the applications' tasks belong to that block.
    Lifespan events are not sent. If a response is closed early or a read times out, the application
    receives `http.disconnect`.

    Args:
        app: The application.
        client: The client address that the application sees.
    """

    def __init__(self, app: ASGIApp, *, client: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._app = app
        self._client = client
        self._tasks: TaskGroup | None = None
        self._entered = 0
        self._open: set[_AsgiExchange] = set()

    @override
    async def __aenter__(self) -> Self:
        self._entered += 1
        if self._entered == 1:
            self._tasks = anyio.create_task_group()
            await self._tasks.__aenter__()
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._entered -= 1
        if self._entered or self._tasks is None:
            return
        tasks, self._tasks = self._tasks, None
        for exchange in list(self._open):
            exchange.disconnect()
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            for exchange in list(self._open):
                await exchange.done.wait()
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(exc_type, exc_value, traceback)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._tasks is None:
            raise RuntimeError("Enter the client with `async with` before sending requests.")
        exchange = _AsgiExchange(
            _build_scope(request, self._client), _request_messages(request), _read_timeout(request)
        )
        self._open.add(exchange)
        self._tasks.start_soon(self._serve, exchange)
        with ExitStack() as on_failure:
            on_failure.callback(exchange.disconnect)
            response = await exchange.response()
            on_failure.pop_all()
        return response

    async def _serve(self, exchange: "_AsgiExchange") -> None:
        try:
            await exchange.run(self._app)
        finally:
            self._open.discard(exchange)


class _AsgiExchange:
    """One request and its response."""

    def __init__(self, scope: Scope, body: AsyncIterator[Message], timeout: float | None) -> None:
        self.done = anyio.Event()
        self._scope = scope
        self._request = body
        self._timeout = timeout
        self._gone = anyio.Event()
        self._started = anyio.Event()
        self._start: Message | None = None
        self._failure: Exception | None = None
        self._send: MemoryObjectSendStream[bytes]
        self._receive: MemoryObjectReceiveStream[bytes]
        self._send, self._receive = anyio.create_memory_object_stream[bytes](MAX_BUFFERED_CHUNKS)

    async def run(self, app: ASGIApp) -> None:
        """Call the application. Its exception is raised to the client, not in the task group."""
        try:
            await app(self._scope, self._next_message, self._send_message)
        except Exception as error:  # noqa: BLE001 - HTTP handler: handed to whoever made the request
            self._failure = error
        finally:
            self._started.set()
            self._send.close()
            self.done.set()

    async def response(self) -> httpx.Response:
        """Wait for the response to start."""
        with anyio.move_on_after(self._timeout) as limit:
            await self._started.wait()
        if limit.cancelled_caught:
            raise httpx.ReadTimeout(f"No response within {self._timeout} s.")
        if self._start is None:
            raise self._failure or httpx.RemoteProtocolError("The application sent no response.")
        return httpx.Response(
            self._start["status"],
            headers=self._start.get("headers", []),
            stream=_ResponseStream(self),
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's chunks as they arrive."""
        while True:
            try:
                with anyio.fail_after(self._timeout):
                    chunk = await self._receive.receive()
            except TimeoutError:
                self.disconnect()
                raise httpx.ReadTimeout(f"No data within {self._timeout} s.") from None
            except anyio.EndOfStream:
                break
            yield chunk
        if self._failure is not None:
            raise httpx.ReadError("The response ended early.") from self._failure

    def disconnect(self) -> None:
        """Disconnect the client: notify the application and drop what it still sends."""
        self._gone.set()
        self._receive.close()

    async def _next_message(self) -> Message:
        async for message in self._request:
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._started.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self._send.send(bytes(message["body"]))
            if not message.get("more_body", False):
                self._send.close()


class _ResponseStream(httpx.AsyncByteStream):
    """The body of a response."""

    def __init__(self, exchange: _AsgiExchange) -> None:
        self._exchange = exchange

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange.chunks()

    @override
    async def aclose(self) -> None:
        self._exchange.disconnect()


async def _request_messages(request: httpx.Request) -> AsyncIterator[Message]:
    """Yield a request's body: in one message if it is in memory, else as it is read."""
    if isinstance(request.stream, httpx.ByteStream):
        yield {"type": "http.request", "body": request.read(), "more_body": False}
        return
    async for chunk in cast("AsyncIterator[bytes]", request.stream):
        yield {"type": "http.request", "body": chunk, "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}


def _build_scope(request: httpx.Request, client: tuple[str, int]) -> dict[str, Any]:
    target, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": _SPEC_VERSION},
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


def _read_timeout(request: httpx.Request) -> float | None:
    timeout = request.extensions.get("timeout") or {}
    read: float | None = timeout.get("read")
    return read
