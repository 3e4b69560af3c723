"""Calls of an ASGI application in this process: an HTTP transport that streams responses, and a client for it.

httpx's own ASGI transport buffers the whole response, so a token stream would arrive only at its end.
This one passes on each chunk as it is sent; the application blocks while the buffer is full.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, cast

import anyio
import httpx
from starlette.types import ASGIApp, Message, Scope
from typing_extensions import override

MAX_BUFFERED_CHUNKS = 8
"""Unread chunks of a response before the application blocks."""

CLOSE_TIMEOUT_S = 5.0
"""How long applications have to finish after their clients disconnect when the transport closes, seconds."""

_SPEC_VERSION = "2.3"
"""As in uvicorn: `receive` reports a disconnected client; `send` does not raise."""

_DEFAULT = httpx.USE_CLIENT_DEFAULT
_SIMPLE_OPTIONS = frozenset({"content", "headers", "timeout"})


class InProcessClient(httpx.AsyncClient):
    """An HTTP client of an application in this process, without what only a network needs.

    Requests with a path and a body take the short way: no cookies, redirects, proxies or content encodings, and
    no other headers than these. All other requests are made by httpx.

    Args:
        app: The application. It must be called from one event loop.
        base_url: URL that paths are appended to.
        timeout: Bounds of reading, as in httpx.
        headers: Of every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        base_url: str,
        timeout: httpx.Timeout | float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._application = StreamingASGITransport(app)
        super().__init__(
            transport=self._application, base_url=base_url, timeout=timeout, headers=headers
        )
        self._own_headers = dict(headers or {})
        self._prefix = base_url.rstrip("/")
        self._extensions = {"timeout": self.timeout.as_dict()}

    @override
    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        given = {name for name, value in options.items() if value is not None}
        simple = given <= _SIMPLE_OPTIONS and options.get("timeout", _DEFAULT) is _DEFAULT
        if not (simple and isinstance(url, str) and url.startswith("/")):
            return super().build_request(method, url, **options)
        return httpx.Request(
            method,
            httpx.URL(self._prefix + url),
            content=options.get("content"),
            headers={**self._own_headers, **(options.get("headers") or {})},
            extensions=self._extensions,
        )

    @override
    async def send(
        self,
        request: httpx.Request,
        *,
        stream: bool = False,
        auth: Any = httpx.USE_CLIENT_DEFAULT,
        follow_redirects: Any = httpx.USE_CLIENT_DEFAULT,
    ) -> httpx.Response:
        if auth is not _DEFAULT or follow_redirects is not _DEFAULT:
            return await super().send(
                request, stream=stream, auth=auth, follow_redirects=follow_redirects
            )
        response = await self._application.handle_async_request(request)
        response.request = request
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response


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
        self._tasks: asyncio.TaskGroup | None = None
        self._entered = 0
        self._open: set[_AsgiExchange] = set()

    @override
    async def __aenter__(self) -> Self:
        self._entered += 1
        if self._entered == 1:
            self._tasks = asyncio.TaskGroup()
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
        for exchange in self._open:
            exchange.cancel()
        with anyio.CancelScope(shield=True):
            await tasks.__aexit__(None, None, None)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._tasks is None:
            raise RuntimeError("Enter the client with `async with` before sending requests.")
        exchange = _AsgiExchange(
            _build_scope(request, self._client), _request_messages(request), _read_timeout(request)
        )
        self._open.add(exchange)
        exchange.task = self._tasks.create_task(self._serve(exchange))
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
    """One request and its response.

    Attributes:
        done: Set when the application returned.
        task: Runs the application.
    """

    def __init__(self, scope: Scope, body: AsyncIterator[Message], timeout: float | None) -> None:
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._scope = scope
        self._request = body
        self._timeout = timeout
        self._gone = asyncio.Event()
        self._start: Message | None = None
        self._failure: Exception | None = None
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def run(self, app: ASGIApp) -> None:
        """Call the application. Its exception is raised to the client, not in the task group."""
        try:
            await app(self._scope, self._next_message, self._send_message)
        except Exception as error:  # noqa: BLE001 - HTTP handler: handed to whoever made the request
            self._failure = error
        finally:
            self._ended = True
            self._readable.set()
            self.done.set()

    def cancel(self) -> None:
        """Cancel the application."""
        if self.task is not None:
            self.task.cancel()

    async def response(self) -> httpx.Response:
        """Wait for the response to start."""
        expired = False
        while self._start is None and not self._ended:
            if expired:
                raise httpx.ReadTimeout(f"No response within {self._timeout} s.")
            expired = await self._wait_for_application()
        if self._start is None:
            raise self._failure or httpx.RemoteProtocolError("The application sent no response.")
        return httpx.Response(
            self._start["status"],
            headers=self._start.get("headers", []),
            stream=_ResponseStream(self),
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives: what was sent since the last chunk, together."""
        while True:
            expired = False
            while not self._chunks and not self._ended:
                if self._gone.is_set():
                    raise httpx.ReadError("The response was closed.")
                if expired:
                    self.disconnect()
                    raise httpx.ReadTimeout(f"No data within {self._timeout} s.")
                expired = await self._wait_for_application()
            if not self._chunks:
                break
            unread = b"".join(self._chunks)
            self._chunks.clear()
            self._writable.set()
            yield unread
        if self._failure is not None:
            raise httpx.ReadError("The response ended early.") from self._failure

    async def _wait_for_application(self) -> bool:
        """Wait until the application sent something or ended. True if the time is over."""
        self._readable.clear()
        if self._timeout is None:
            await self._readable.wait()
            return False
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        timer = loop.call_at(until, self._readable.set)
        try:
            await self._readable.wait()
        finally:
            timer.cancel()
        return loop.time() >= until

    def disconnect(self) -> None:
        """Disconnect the client: notify the application and drop what it still sends."""
        self._gone.set()
        self._chunks.clear()
        self._readable.set()
        self._writable.set()

    async def _next_message(self) -> Message:
        async for message in self._request:
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            if message.get("body"):
                await self._put(bytes(message["body"]))
            self._ended = self._ended or not message.get("more_body", False)
        self._readable.set()

    async def _put(self, chunk: bytes) -> None:
        """Buffer a chunk; wait while the buffer is full. After a disconnect, drop it and let others work."""
        while len(self._chunks) >= MAX_BUFFERED_CHUNKS:
            self._writable.clear()
            await self._writable.wait()
        if self._gone.is_set():
            await asyncio.sleep(0)
        else:
            self._chunks.append(chunk)


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
