"""Limits of network connections: half-open requests, clients that do not read, and floods of errors in the log."""

import logging
import resource
import socket
import time
from asyncio import Transport
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from gateway.auth import limit_body
from gateway.gateway_config import GatewayConfig
from gateway.rate_limits import ConnectionConfig
from gateway.runtime.protocol import ThreadEventLogs
from gateway.serving.connections import MAX_UNREAD_BYTES, Connection, RepeatedErrorFilter
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from store.data_folder import running_address
from tests.eventually import eventually
from tests.journeys.service import Service, serving

HALF_OPEN = 1200
HEAD_START = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LONG_S = 30.0
LARGE = b"x" * 20_000_000
"""Bytes, more than the kernel buffers."""


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Raise this process's limit of file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def half_open(stack: ExitStack, port: int) -> socket.socket:
    """Open a connection and send the start of a request."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LONG_S))
    connection.sendall(HEAD_START)
    return connection


def count_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_half_open_requests_do_not_block_other_clients(tmp_path: Path) -> None:
    config = {"gateway": {"connections": {"max_total": 200, "max_per_client": 100}}}
    async with serving(tmp_path, config, "terminal") as service:
        process = service._process
        assert process is not None
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (700, 700))
        with many_descriptors(HALF_OPEN + 200), ExitStack() as stack:
            for number in range(HALF_OPEN):
                await anyio.to_thread.run_sync(half_open, stack, service.port)
                if number % 300 == 0:
                    async with httpx.AsyncClient(base_url=service.url, timeout=LONG_S) as client:
                        assert (await client.get("/health")).status_code == 200
            async with httpx.AsyncClient(base_url=service.url, timeout=LONG_S) as client:
                assert (await client.get("/health")).status_code == 200
            code, out, err = await service.command("chat", stdin="hello\n")
            assert (code, err) == (0, "")
            assert "You said: hello" in out
            assert count_descriptors(process.pid) < 300
        assert service.log.stat().st_size < 100_000


async def test_a_limit_of_memory_refuses_what_does_not_fit_and_ends_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, {}, "terminal") as service, service.client() as client:
        client.timeout = httpx.Timeout(60)
        code, out, _ = await service.command("chat", stdin="hello\n")  # everything is imported now
        assert (code, "You said: hello" in out) == (0, True)
        used = psutil.Process(service.pid).memory_info().vms
        limit = used + 50_000_000
        resource.prlimit(service.pid, resource.RLIMIT_AS, (limit, limit))
        text = "x" * 5_000_000
        body = {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"role": "user", "content": text}]},
        }
        statuses: list[int] = []

        async def ask() -> None:
            with suppress(
                httpx.TransportError
            ):  # even the request does not fit, so the connection is closed
                statuses.append((await client.post("/api/runs/wait", json=body)).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(ask)
        assert statuses.count(200) < 16
        assert statuses.count(500) == 0
        code, out, _ = await service.command("chat", stdin="hello again\n")
        assert (code, "You said: hello again" in out) == (0, True)


async def test_accept_errors_are_logged_once_a_second(tmp_path: Path) -> None:
    """If there are too few descriptors for the configured connections, the log stays small and the service recovers."""
    async with serving(tmp_path, {}, "terminal") as service:
        process = service._process
        assert process is not None
        used = count_descriptors(process.pid)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
        with ExitStack() as stack:
            for _ in range(100):
                half_open(stack, service.port)
            await eventually(
                service.log.read_text,
                lambda log: "out of system resource" in log,
                within_s=LONG_S,
                every_s=0.05,
            )
            await anyio.sleep(2)  # the event loop tries again each second
        assert service.log.stat().st_size < 100_000
        assert service.running, service.log.read_text()
        async with httpx.AsyncClient(base_url=service.url, timeout=LONG_S) as client:
            assert (await client.get("/health")).status_code == 200


SLOW_PROVIDER = """
import time

class SlowProvider:
    name = "slow"

    def find_problem(self):
        time.sleep(2)

    def evaluate(self, request):
        raise NotImplementedError

    aevaluate = evaluate
"""


async def test_the_first_answer_comes_after_the_files_of_the_start(tmp_path: Path) -> None:
    """From then on, connections may take all descriptors, and the service would fail if it still had to open a file."""
    (tmp_path / "slow_provider.py").write_text(SLOW_PROVIDER)
    guardrails = {"enabled": True, "provider": {"use": "slow_provider:SlowProvider"}}
    service = Service(tmp_path, {"guardrails": guardrails})
    await service.launch()
    try:
        await service.until_alive()
        assert running_address(service.home) == service.url
    finally:
        await service.kill()


async def endless(request: Request) -> StreamingResponse:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65_536
                await anyio.lowlevel.checkpoint()
        finally:
            request.app.state.ended.set()

    return StreamingResponse(chunks())


class PausingApplication:
    """Sends more than the network buffers hold, and the rest when the test permits it."""

    def __init__(self) -> None:
        self.may_end = anyio.Event()

    async def respond(self, _request: Request) -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            yield LARGE
            await self.may_end.wait()
            yield b"end"

        return StreamingResponse(chunks())

    async def send(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_bytes(LARGE)
        await self.may_end.wait()
        await websocket.send_bytes(b"end")


async def health(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


async def read_body(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def wait(_request: Request) -> None:
    await anyio.sleep_forever()


async def endless_messages(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_bytes(b"x" * 65_536)
            await anyio.lowlevel.checkpoint()
    finally:
        websocket.app.state.ended.set()


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


@asynccontextmanager
async def limited(**limits: float) -> AsyncIterator[tuple[Starlette, int, HttpServer]]:
    """Serve an application with limits. Yield the application, its port and the server."""
    pausing = PausingApplication()
    routes = [
        *(Route("/health", health), Route("/endless", endless), Route("/wait", wait)),
        *(Route("/read", read_body, methods=["POST"]), WebSocketRoute("/echo", echo)),
        *(Route("/pausing", pausing.respond), WebSocketRoute("/pausing", pausing.send)),
        WebSocketRoute("/endless", endless_messages),
    ]
    app = Starlette(routes=routes)
    app.state.pausing = pausing
    app.state.ended = anyio.Event()
    with open_listener(GatewayConfig(port=0)) as listener:
        server = HttpServer(app, listener, ConnectionConfig.model_validate(limits))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run_until_stopped)
            await server.ready.wait()
            with anyio.fail_after(LONG_S):
                yield app, listener.getsockname()[1], server
            server.stop()


async def read_to_the_end(connection: anyio.abc.SocketStream) -> bytes:
    """Return all bytes until the server closes the connection."""
    received = b""
    try:
        while True:
            received += await connection.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return received


async def test_a_request_whose_head_does_not_arrive_is_closed() -> None:
    async with limited(request_timeout_s=1.0) as (_, port, _):
        for sent in (b"", HEAD_START, HEAD_START + b"\r\n" + HEAD_START):
            async with await anyio.connect_tcp("127.0.0.1", port) as connection:
                if sent:
                    await connection.send(sent)
                received = await read_to_the_end(connection)
                assert received.endswith(b"ok") == (sent.count(b"GET") == 2)


UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("headers", [b"", UPGRADE], ids=["response", "websocket"])
async def test_a_client_that_does_not_read_is_disconnected(headers: bytes) -> None:
    async with (
        limited(write_timeout_s=0.2) as (app, port, _),
        await anyio.connect_tcp("127.0.0.1", port) as connection,
    ):
        await connection.send(b"GET /endless HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n" % headers)
        await app.state.ended.wait()


@asynccontextmanager
async def read_slowly(port: int, kind: str) -> AsyncIterator[Callable[[int], Awaitable[bytes]]]:
    """Request `PausingApplication`. Yield a function that reads a given number of bytes of the response."""
    if kind == "websocket":
        url = f"ws://127.0.0.1:{port}/pausing"
        async with connect(url, max_size=None, compression=None) as websocket:
            yield lambda _count: websocket.recv(decode=False)
        return
    async with (
        httpx.AsyncClient(timeout=LONG_S) as client,
        client.stream("GET", f"http://127.0.0.1:{port}/pausing") as response,
    ):
        chunks = response.aiter_bytes()

        async def read(count: int) -> bytes:
            received = bytearray()
            while len(received) < count:
                received += await anext(chunks)
            return bytes(received)

        yield read


@pytest.mark.parametrize("kind", ["response", "websocket"])
async def test_a_client_that_reads_again_stays_connected(kind: str) -> None:
    """The response exceeds the network buffers, so the server waits for the client at first."""
    async with limited() as (app, port, server), read_slowly(port, kind) as read:
        assert await read(len(LARGE)) == LARGE
        server._limiter.clock = lambda: time.monotonic() + 1e6
        server._limiter.close_slow()
        app.state.pausing.may_end.set()
        assert await read(len(b"end")) == b"end"


async def test_a_client_that_reads_a_large_answer_slowly_stays_connected() -> None:
    async with (
        limited() as (_, port, server),
        await anyio.connect_tcp("127.0.0.1", port) as client,
    ):
        limiter = server._limiter
        await client.send(b"GET /pausing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await eventually(lambda: any(one.write_paused_at for one in limiter._open.values()))
        [connection] = limiter._open.values()

        async def read_some() -> bool:
            await client.receive()
            return connection.has_read

        ahead_s = 0.0
        limiter.clock = lambda: time.monotonic() + ahead_s
        for _ in range(2):
            await eventually(read_some, every_s=0.0)
            ahead_s += 3600.0
            limiter.close_slow()
            assert not connection.transport.is_closing()
        ahead_s += 3600.0
        limiter.close_slow()
        assert connection.transport.is_closing()


def is_behind(connections: dict[Transport, Connection], known: set[Transport]) -> bool:
    """Return whether there is a new connection whose client does not read."""
    return any(one.write_paused_at for key, one in connections.items() if key not in known)


async def test_unread_data_of_all_clients_is_limited() -> None:
    """Without a limit, twenty clients that did not read a response of 45 MB took 900 MB."""
    request = b"GET /pausing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with limited() as (app, port, server), AsyncExitStack() as stack:
        connections = server._limiter._open
        clients: list[anyio.abc.SocketStream] = []
        for _ in range(2 * MAX_UNREAD_BYTES // len(LARGE)):
            known = {*connections}
            clients.append(
                await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
            )
            await clients[-1].send(request)
            await eventually(partial(is_behind, connections, known))
            unread = sum(transport.get_write_buffer_size() for transport in connections)
            assert unread <= MAX_UNREAD_BYTES
        app.state.pausing.may_end.set()
        assert len(await read_to_the_end(clients[0])) < len(LARGE)
        read = b""
        while not read.endswith(b"end\r\n0\r\n\r\n"):
            read = read[-100:] + await clients[-1].receive()


async def send_repeatedly(stream: anyio.abc.SocketStream, start: bytes, more: bytes) -> None:
    """Send far more than the kernel buffers."""
    await stream.send(start)
    for _ in range(1000):
        await stream.send(more)


CHUNKED_START = b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        pytest.param(HEAD_START + b"X: ", b"x" * 65_536, id="one header"),
        pytest.param(HEAD_START, b"X: x\r\n" * 10_000, id="many headers"),
        pytest.param(b"GET /", b"x" * 65_536, id="the path"),
        pytest.param(CHUNKED_START + b"0\r\n", b"X: x\r\n" * 10_000, id="trailers"),
        pytest.param(CHUNKED_START + b"0\r\nX: ", b"x" * 65_536, id="one trailer"),
        pytest.param(CHUNKED_START + b"1;", b"x" * 65_536, id="a chunk's extensions"),
    ],
)
async def test_a_head_without_end_is_not_kept(start: bytes, more: bytes) -> None:
    async with (
        limited() as (_, port, _),
        await anyio.connect_tcp("127.0.0.1", port) as connection,
    ):
        with pytest.raises(anyio.BrokenResourceError):
            await send_repeatedly(connection, start, more)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(HEAD_START + b"X: " + b"x" * 100_000 + b"\r\n\r\n", id="one header"),
        pytest.param(HEAD_START + b"X: x\r\n" * 30_000 + b"\r\n", id="many headers"),
        pytest.param(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="path"),
        pytest.param(HEAD_START + b"\r\n" + HEAD_START + b"X: " + b"x" * 100_000 + b"\r\n\r\n", id="second"),
    ],
)  # fmt: skip
async def test_a_large_head_in_one_write_is_refused(request_bytes: bytes) -> None:
    async with (
        limited() as (_, port, _),
        await anyio.connect_tcp("127.0.0.1", port) as connection,
    ):
        await connection.send(request_bytes)
        answers = await read_to_the_end(connection)
        assert b"HTTP/1.1 400" in answers
        assert answers.count(b"HTTP/1.1 200") <= request_bytes.count(b"GET") - 1


async def test_a_long_head_and_a_long_body_are_read() -> None:
    long = {"X": "x" * 60_000}
    async with (
        limited() as (_, port, _),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/health", headers=long)).text == "ok"
        whole = await client.post("/read", headers=long, content=b"x" * 1_000_000)
        assert whole.text == "1000000 bytes"

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(1000):
                yield b"xyz" * 100

        assert (await client.post("/read", content=pieces())).text == "300000 bytes"


async def test_requests_that_wait_for_no_response_are_not_kept() -> None:
    request = HEAD_START + b"\r\n"
    async with limited() as (_, port, _):
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            await connection.send(request * 10)
            received = b""
            while received.count(b"ok") < 10:
                received += await connection.receive()
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            await connection.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + request * 100)
            assert (await read_to_the_end(connection)).startswith(b"HTTP/1.1 400")


async def test_slow_clients_make_room_and_those_that_are_served_stay() -> None:
    incomplete = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"
    async with (
        limited(max_total=16, max_per_client=8) as (app, port, _),
        connect(f"ws://127.0.0.1:{port}/echo") as websocket,
        await anyio.connect_tcp("127.0.0.1", port) as unread,
    ):
        await unread.send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        with ExitStack() as stack:
            while not app.state.ended.is_set():
                address = ("127.0.0.1", port)
                slow = stack.enter_context(socket.create_connection(address, timeout=LONG_S))
                slow.sendall(incomplete)
                await anyio.sleep(0.01)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/health")).text == "ok"
        await websocket.send("still here")
        assert await websocket.recv() == "still here"


async def test_the_oldest_waiting_connection_makes_room_and_serving_ones_stay() -> None:
    async with (
        limited(max_total=16, max_per_client=8) as (_, port, _),
        connect(f"ws://127.0.0.1:{port}/echo") as websocket,
    ):
        with ExitStack() as stack:
            waiting = [half_open(stack, port) for _ in range(8)]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/health")).text == "ok"
            with pytest.raises(ConnectionResetError):
                waiting[0].recv(1)
        await websocket.send("still here")
        assert await websocket.recv() == "still here"


async def test_connections_of_many_addresses_are_limited_together() -> None:
    async with limited(max_total=16, max_per_client=8) as (_, port, _):
        with ExitStack() as stack:
            waiting = [
                stack.enter_context(
                    socket.create_connection(
                        ("127.0.0.1", port), LONG_S, (f"127.0.0.{2 + number % 6}", 0)
                    )
                )
                for number in range(24)
            ]
            for client in waiting:
                client.sendall(HEAD_START)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as other:
                assert (await other.get("/health")).text == "ok"
            with pytest.raises(ConnectionResetError):
                waiting[0].recv(1)


@pytest.mark.parametrize("header", ["Key", "Protocol", "Extensions", "Version"])
async def test_a_websocket_whose_headers_are_not_ascii_is_refused_quietly(
    caplog: pytest.LogCaptureFixture, header: str
) -> None:
    headers = {"Key": b"dGhlIHNhbXBsZSBub25jZQ==", "Version": b"13", header: b"\xc3("}
    lines = [b"Sec-WebSocket-%s: %s\r\n" % (key.encode(), headers[key]) for key in headers]
    head = b"GET /echo HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    async with limited() as (_, port, _), await anyio.connect_tcp("127.0.0.1", port) as connection:
        await connection.send(head + b"".join(lines) + b"\r\n")
        assert (await read_to_the_end(connection)).startswith(b"HTTP/1.1 400 ")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_closed_websockets_are_not_counted() -> None:
    async with limited(max_total=16, max_per_client=8) as (_, port, _):
        for _ in range(20):
            async with connect(f"ws://127.0.0.1:{port}/echo") as websocket:
                await websocket.send("hello")
                assert await websocket.recv() == "hello"


def test_repeated_records_are_dropped_for_a_while() -> None:
    now = 0.0
    repeated = RepeatedErrorFilter(every_s=1.0, clock=lambda: now)

    def passes(text: str) -> bool:
        return repeated.filter(logging.makeLogRecord({"msg": text}))

    assert [passes("accept failed\nfd 7"), passes("accept failed\nfd 8"), passes("other")] == [
        True,
        False,
        True,
    ]
    now = 1.5
    assert passes("accept failed\nfd 9")


async def test_a_body_that_trickles_in_is_rejected() -> None:
    """Otherwise, single bytes sent just within the longest pause would hold a connection for days."""
    sent = 0

    async def trickle() -> Message:
        nonlocal sent
        sent += 1
        await anyio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    receive = limit_body(trickle, 10_000_000, pause_s=1.0)

    async def read_all() -> None:
        while (await receive())["more_body"]:
            pass

    with anyio.fail_after(LONG_S), pytest.raises(HTTPException) as error:
        await read_all()
    assert error.value.status_code == 408
    assert 1 < sent < 100


def test_the_events_of_all_threads_are_bounded_together() -> None:
    logs = ThreadEventLogs(lambda: 0.0)
    first = logs.for_thread("0")
    for number in range(12):
        log = logs.for_thread(str(number))
        log.bytes = 7_000_000
    assert logs.for_thread("11").bytes == 7_000_000
    assert logs.for_thread("0") is not first
