from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import anyio.lowlevel
import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.transport import MAX_BUFFERED_CHUNKS, InProcessClient, StreamingASGITransport
from tests.eventually import eventually

BASE_URL = "http://inside/api"


class Chunks:
    """An application that sends one chunk for every permit, and notes what became of it."""

    def __init__(self, chunks: int = 3) -> None:
        self.chunks = chunks
        self.permits = anyio.Semaphore(0)
        self.sent = 0
        self.left = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, receive, tasks.cancel_scope)
            for number in range(self.chunks):
                await self.permits.acquire()
                body = b"chunk%d;" % number
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self.sent += 1
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        assert (await receive())["type"] == "http.disconnect"
        self.left.set()
        scope.cancel()


class Calling(Protocol):
    """Opens a client of an application."""

    def __call__(
        self, app: ASGIApp, read_s: float = 20.0
    ) -> AbstractAsyncContextManager[httpx.AsyncClient]: ...


def through_httpx(app: ASGIApp, read_s: float = 20.0) -> httpx.AsyncClient:
    transport = StreamingASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=BASE_URL, timeout=read_s)


def in_process(app: ASGIApp, read_s: float = 20.0) -> httpx.AsyncClient:
    return InProcessClient(app, base_url=BASE_URL, timeout=read_s)


@pytest.fixture(params=[through_httpx, in_process])
def calling(request: pytest.FixtureRequest) -> Calling:
    opened: Calling = request.param
    return opened


async def test_chunks_arrive_while_the_application_still_works(calling: Calling) -> None:
    app = Chunks()
    async with calling(app) as client, client.stream("GET", "/x") as response:
        assert response.status_code == 200
        parts = response.aiter_bytes()
        for number in range(3):
            app.permits.release()
            assert await anext(parts) == b"chunk%d;" % number
        with pytest.raises(StopAsyncIteration):
            await anext(parts)
    assert not app.left.is_set()


async def test_the_application_waits_for_a_slow_reader(calling: Calling) -> None:
    app = Chunks(chunks=50)
    for _ in range(50):
        app.permits.release()
    async with calling(app) as client, client.stream("GET", "/x") as response:
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert app.sent < 20
        assert (await response.aread()).endswith(b"chunk49;")


async def test_a_disconnect_is_reported_to_the_application(calling: Calling) -> None:
    app = Chunks()
    async with calling(app) as client:
        async with client.stream("GET", "/x") as response:
            app.permits.release()
            assert await anext(response.aiter_bytes()) == b"chunk0;"
        with anyio.fail_after(20):
            await app.left.wait()


async def test_a_cancelled_caller_is_told_to_the_application(calling: Calling) -> None:
    app = Chunks()
    async with calling(app) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.get, "/x")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await app.left.wait()


async def test_closing_the_client_ends_what_is_open(calling: Calling) -> None:
    app = Chunks()
    async with calling(app) as client:
        await client.send(client.build_request("GET", "/x"), stream=True)
    assert app.left.is_set()


async def test_an_application_that_ignores_the_end_is_cancelled() -> None:
    was_cancelled = anyio.Event()

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await anyio.sleep_forever()
        finally:
            was_cancelled.set()

    async with in_process(deaf) as client:
        await client.send(client.build_request("GET", "/x"), stream=True)
    assert was_cancelled.is_set()


async def test_silence_is_a_read_timeout(calling: Calling) -> None:
    app = Chunks()
    async with calling(app, read_s=0.01) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/x")
        with anyio.fail_after(20):
            await app.left.wait()

    async def mute(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await receive()

    async with calling(mute, read_s=0.01) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("/x")


async def test_what_the_application_is_told_of_the_request(calling: Calling) -> None:
    seen: dict[str, object] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(scope, body=(await receive())["body"])
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    async with calling(app) as client:
        answer = await client.post("/a%20b?q=1&q=2", json={"n": 1}, headers={"X-Api-Key": "k"})
    assert answer.status_code == 204
    assert (seen["method"], seen["path"]) == ("POST", "/api/a b")
    assert (seen["raw_path"], seen["query_string"]) == (b"/api/a%20b", b"q=1&q=2")
    assert seen["body"] == b'{"n":1}'
    assert isinstance(seen["headers"], list)
    assert (b"x-api-key", b"k") in seen["headers"]


async def test_an_application_that_breaks(calling: Calling) -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("early")

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        return

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("late")

    async with calling(early) as client:
        with pytest.raises(ValueError, match="early"):
            await client.get("/x")
    async with calling(silent) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/x")
    async with calling(late) as client:
        with pytest.raises(httpx.ReadError):
            await client.get("/x")


async def test_it_must_be_entered() -> None:
    client = httpx.AsyncClient(transport=StreamingASGITransport(Chunks()))
    with pytest.raises(RuntimeError, match="async with"):
        await client.get("http://inside/")
    await client.aclose()


async def test_a_request_body_is_handed_over_as_it_is_read(calling: Calling) -> None:
    taken: list[tuple[bytes, bool]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            taken.append((message["body"], more))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async with calling(app) as client:
        await client.post("/x", content=body())
        await client.post("/x", content=b"whole")
    assert taken == [(b"one", True), (b"two", True), (b"", False), (b"whole", False)]


async def test_chunks_that_were_sent_together_are_read_together(calling: Calling) -> None:
    app = Chunks(chunks=MAX_BUFFERED_CHUNKS)
    async with calling(app) as client, client.stream("GET", "/x") as response:
        for _ in range(MAX_BUFFERED_CHUNKS):
            app.permits.release()
        await eventually(lambda: app.sent == MAX_BUFFERED_CHUNKS)
        assert (await anext(response.aiter_bytes())).endswith(
            b"chunk%d;" % (MAX_BUFFERED_CHUNKS - 1)
        )


async def test_an_application_that_never_waits_lets_others_work_after_a_disconnect(
    calling: Calling,
) -> None:
    stopped = False

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not stopped:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async with calling(endless) as client:
        async with client.stream("GET", "/x") as response:
            assert (await anext(response.aiter_bytes())).startswith(b"more")
        await anyio.lowlevel.checkpoint()
        stopped = True


async def test_options_of_httpx_work_in_process() -> None:
    seen: list[tuple[str, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], scope["query_string"]))
        moved = scope["path"].endswith("/old")
        headers = [(b"location", b"/api/new")] if moved else []
        status = 307 if moved else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async with in_process(app) as client:
        found = await client.get("/x", params={"q": "1 2"}, timeout=5)
        moved = await client.get("/old", follow_redirects=True)
        absolute = await client.get("http://inside/other")
    assert found.json() == {}
    assert (moved.status_code, absolute.status_code) == (200, 200)
    assert seen == [("/api/x", b"q=1+2"), ("/api/old", b""), ("/api/new", b""), ("/other", b"")]


async def test_every_request_has_the_headers_of_the_client() -> None:
    seen: list[list[str]] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        given = {name: value.decode() for name, value in scope["headers"]}
        seen.append([given.get(b"x-own", ""), given.get(b"x-other", "")])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = InProcessClient(app, base_url=BASE_URL, timeout=20.0, headers={"X-Own": "1"})
    async with client:
        await client.post("/simple", content=b"{}", headers={"X-Other": "2"})
        await client.post("/simple", content=b"{}")
        await client.get("/with-a-query", params={"a": "b"}, headers={"X-Other": "2"})
    assert seen == [["1", "2"], ["1", ""], ["1", "2"]]
