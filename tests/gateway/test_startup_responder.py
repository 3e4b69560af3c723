"""Health checks while the service starts: answered at once, and every other connection is kept for the server."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.gateway_config import GatewayConfig
from gateway.middleware import API_GROUP
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from gateway.serving.startup_responder import MAX_CONNECTIONS, StartupResponder
from store.work_group import WORK_GROUP
from tests.eventually import eventually
from tests.journeys.service import Service

REQUEST = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nhello"
WITHIN_S = 10.0


@contextmanager
def starting() -> Iterator[tuple[StartupResponder, socket.socket, int]]:
    """Yield a responder, its listener and the port; nothing but its thread answers."""
    with (
        open_listener(GatewayConfig(port=0)) as listener,
        StartupResponder(listener) as responder,
    ):
        yield responder, listener, listener.getsockname()[1]


def connected(stack: ExitStack, port: int, sent: bytes = b"") -> socket.socket:
    connection = stack.enter_context(
        socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    )
    connection.sendall(sent)
    return connection


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(b"served: " + await request.body())


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/health", 200, {"status": "healthy", "service": "parley"}),
        ("/health/ready", 503, {"status": "starting"}),
    ],
)
def test_health_checks_are_answered(path: str, status: int, body: dict[str, str]) -> None:
    with starting() as (_, _, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(3):
            answer = client.get(path)
            assert (answer.status_code, answer.json()) == (status, body)
        head = client.head(path)
        assert (head.status_code, head.content) == (status, b"")
        assert int(head.headers["content-length"]) == len(json.dumps(body, separators=(",", ":")))


def test_a_health_check_is_answered_while_other_connections_wait_and_leave() -> None:
    with starting() as (responder, _, port), ExitStack() as stack:
        waiting = [connected(stack, port, sent) for sent in (b"", REQUEST, b"GET /hea")]
        connected(stack, port).close()
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        kept = responder.stop()
        assert {one.getpeername() for one in kept} == {one.getsockname() for one in waiting}
        assert responder.stop() == []
        for one in kept:
            one.close()


def test_connections_beyond_the_limit_wait_in_the_queue_of_the_system() -> None:
    with starting() as (responder, listener, port), ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            connected(stack, port)
        last = connected(stack, port)
        deadline = time.monotonic() + WITHIN_S
        while len(responder._silent) < MAX_CONNECTIONS and time.monotonic() < deadline:
            time.sleep(0.01)
        kept = responder.stop()
        assert len(kept) == MAX_CONNECTIONS
        accepted, address = listener.accept()
        assert address == last.getsockname()
        for one in (accepted, *kept):
            one.close()


async def test_the_server_takes_over_requests_that_arrived_earlier() -> None:
    starlette = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
    groups: list[str | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        groups.append(WORK_GROUP.get())
        await starlette(scope, receive, send)

    with starting() as (responder, listener, port), ExitStack() as stack:
        whole = connected(stack, port, REQUEST)
        begun = connected(stack, port, REQUEST[:9])
        silent = connected(stack, port)
        connected(stack, port, b"GET / HTTP/1.1\r\n").close()
        await eventually(lambda: len(responder._kept), lambda count: count == 3, within_s=WITHIN_S)
        server = HttpServer(app, listener, earlier=responder)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run_until_stopped)
            await server.ready.wait()
            begun.sendall(REQUEST[9:])
            silent.sendall(REQUEST)
            for connection in (whole, begun, silent, connected(stack, port, REQUEST)):
                while not (
                    answer := await anyio.to_thread.run_sync(connection.recv, 65_536)
                ).endswith(b"hello"):
                    assert answer, "closed without an answer"
            server.stop()
    # From their first step on: a hundred requests at once would go before all others.
    assert groups == [API_GROUP] * 4


async def test_a_starting_service_is_healthy_and_lets_requests_wait(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    await service.launch()
    try:
        await service.until_alive()
        async with httpx.AsyncClient(base_url=service.url, timeout=30) as client:
            readiness = await client.get("/health/ready")
            assert (readiness.status_code, readiness.json()) == (503, {"status": "starting"})
            assert "Parley is running" not in service.log.read_text()
            assert (await client.get("/api/models")).status_code == 401
        await service.until_connected("terminal")
        assert await service.stop() == 0
    finally:
        if service.running:
            await service.kill()


async def test_a_service_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    await service.launch()
    await service.until_alive()
    assert service._process is not None
    service._process.send_signal(signal.SIGTERM)
    with anyio.fail_after(WITHIN_S):
        assert await service._process.wait() in (0, -signal.SIGTERM)
