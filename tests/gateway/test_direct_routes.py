"""Direct endpoints answer as FastAPI would. The tests send the same requests both ways."""

import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

from gateway.app import LANGGRAPH_PREFIXES, PREPARED_PATH, Application
from gateway.langgraph import langgraph_routers
from gateway.langgraph.direct_routes import DirectRoutes, direct_endpoint
from gateway.langgraph.route import WireRoute
from gateway.runtime.runs import RunManager
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.asgi import StreamingASGITransport
from tests.fakes.graphs import Graphs
from tests.gateway.langgraph_server import build_app, services_for, shared_routes

HOT = {
    ("POST", "/threads"),
    ("GET", "/threads/{thread_id}/runs/{run_id}"),
    ("POST", "/runs"),
    ("POST", "/runs/stream"),
    ("POST", "/runs/wait"),
    ("POST", "/threads/{thread_id}/runs"),
    ("POST", "/threads/{thread_id}/runs/stream"),
    ("POST", "/threads/{thread_id}/runs/wait"),
    ("GET", "/threads/{thread_id}/runs/{run_id}/join"),
}
"""The requests that the bus and the SDKs send for each run."""

THREAD = "0b5f0d2c-5a3c-4a52-9d0b-6d1f5b1f2a10"
RUN: dict[str, Any] = {"assistant_id": "instant", "input": {"n": 1}}
DEEP = b'{"assistant_id":"instant","input":' + b"[" * 200 + b"]" * 200 + b"}"

REQUESTS: list[tuple[str, str, bytes | dict[str, Any] | None]] = [
    ("POST", "/threads", None),
    ("POST", "/threads", {"metadata": {"a": 1}}),
    ("POST", "/threads", {"thread_id": THREAD}),  # exists
    ("POST", "/threads", {"thread_id": THREAD, "if_exists": "do_nothing"}),
    ("POST", "/threads", {"thread_id": "nonsense"}),
    ("POST", "/threads", {"ttl": -1}),
    ("POST", "/threads", b"{"),
    ("POST", "/threads", b"\xff"),
    ("POST", "/threads", b"null"),
    ("POST", "/threads", b"[1]"),
    ("POST", "/threads", b"7"),
    ("POST", "/threads", {"supersteps": [{"updates": []}]}),
    ("POST", f"/threads/{THREAD}/runs/wait", RUN),
    ("POST", "/threads/{thread_id}/runs/wait", RUN),  # not an ID: a client forgot to fill it in
    ("POST", f"/threads/{THREAD}/runs/wait", None),
    ("POST", f"/threads/{THREAD}/runs/wait", DEEP),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "assistant_id": "nobody"}),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "assistant_id": 7, "command": 3}),
    (
        "POST",
        f"/threads/{THREAD}/runs/wait",
        {**RUN, "config": {"configurable": {"tone": 1}}, "context": {"tone": 2}},
    ),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "multitask_strategy": "queue"}),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "stream_mode": "tokens"}),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "webhook": "http://10.0.0.1/"}),
    ("POST", f"/threads/{THREAD}/runs/wait", {**RUN, "assistant_id": "boom"}),
    ("POST", f"/threads/{THREAD.upper()}/runs/stream", RUN),
    ("POST", "/threads/nonsense/runs/stream", RUN),
    ("POST", "/threads/a%2Fb/runs/stream", RUN),
    ("POST", "/threads//runs/stream", RUN),
    ("POST", f"/threads/{THREAD[:-1]}1/runs/stream", RUN),  # no such thread
    ("POST", "/runs/stream?after=1", RUN),
    ("POST", "/runs/wait", RUN),
    ("POST", "/runs", RUN),
    ("POST", "/runs/", RUN),
    ("GET", f"/threads/{THREAD}/runs/{THREAD}", None),
    ("GET", f"/threads/{THREAD}/runs/{THREAD}/join", None),
    ("GET", f"/threads/{THREAD}/runs/{THREAD}/join?cancel_on_disconnect=perhaps", None),
    ("POST", f"/threads/{THREAD}/runs/{THREAD}/cancel", None),
    ("POST", f"/threads/{THREAD}/runs/{THREAD}/cancel?action=nothing", None),
    ("GET", "/assistants/lead_agent/graph", None),
    ("GET", "/assistants/lead_agent/graph?xray=yes", None),
    ("GET", f"/threads/{THREAD}/runs/search", None),
    ("POST", f"/threads/{THREAD}/runs/wait/", RUN),
    ("PUT", f"/threads/{THREAD}/runs/wait", RUN),
]


@asynccontextmanager
async def _application(tmp_path: Path) -> AsyncIterator[Application]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database.open(StoreConfig(), tmp_path))
        saver = await stack.enter_async_context(open_checkpointer(tmp_path))
        runs = await stack.enter_async_context(RunManager(database, Graphs().sources, saver))
        yield build_app(await services_for(stack, tmp_path, database, runs))


@pytest.mark.parametrize("prefix", LANGGRAPH_PREFIXES)
async def test_requests_are_answered_as_by_fastapi(tmp_path: Path, prefix: str) -> None:
    async with _application(tmp_path) as app:
        direct = await _answers(app, prefix)
        expected = await _answers(partial(FastAPI.__call__, app), prefix)
    for request, one, other in zip(REQUESTS, direct, expected, strict=True):
        assert one == other, request
    assert {status for status, _, _ in direct} == {200, 400, 404, 405, 409, 422}


async def test_nothing_is_built_for_the_first_request_of_a_prepared_application(
    tmp_path: Path,
) -> None:
    path = PREPARED_PATH.replace("any", THREAD)
    shared_routes.cache_clear()  # like in a new process
    async with _application(tmp_path) as app:
        app.prepare()
        first, second = [await _count_calls(app, path) for _ in range(2)]
    assert first < 3 * second


async def _count_calls(app: ASGIApp, path: str) -> int:
    """Return how many Python functions a GET request calls on this thread."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    transport = StreamingASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://parley") as client:
        sys.setprofile(count)
        try:
            await client.get(path)
        finally:
            sys.setprofile(None)
    return calls


@pytest.mark.parametrize("path", ["/api/threads", "/api/threads/search"])
async def test_a_client_that_leaves_within_its_body_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    arriving: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    answered: list[Message] = []

    async def receive() -> Message:
        return arriving.pop(0)

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {**_scope("POST", path), "headers": [], "query_string": b"", "state": {}}
    async with _application(tmp_path) as app:
        await app(scope, receive, send)
    assert answered == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def _answers(app: ASGIApp, prefix: str) -> list[tuple[int, dict[str, str], str]]:
    transport = StreamingASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.delete(f"{prefix}/threads/{THREAD}")
        await client.post(f"{prefix}/threads", json={"thread_id": THREAD})
        return [await _answer(client, prefix, *request) for request in REQUESTS]


async def _answer(
    client: httpx.AsyncClient,
    prefix: str,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None,
) -> tuple[int, dict[str, str], str]:
    content = {"json": body} if isinstance(body, dict) else {"content": body}
    answer = await client.request(method, f"{prefix}{path}", **content)
    headers = {name: _masked(value) for name, value in answer.headers.items()}
    headers.pop("content-length", None)
    return answer.status_code, headers, _masked(answer.text)


def _masked(text: str) -> str:
    """Replace ids and times, which differ between two runs."""
    text = text.replace(": heartbeat\n\n", "")  # on a busy machine
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)", "TIME", text)


def _scope(method: str, path: str) -> Scope:
    return {"type": "http", "method": method, "path": path, "query_string": b""}


def test_the_requests_of_every_run_are_direct() -> None:
    direct = {
        (method, route.path)
        for router in langgraph_routers()
        for route in router.routes
        if isinstance(route, WireRoute) and direct_endpoint(route) is not None
        for method in route.methods or ()
    }
    assert direct >= HOT


def test_requests_with_a_query_or_headers_or_without_a_body_go_to_fastapi() -> None:
    routes = DirectRoutes(langgraph_routers(), LANGGRAPH_PREFIXES)
    run = f"/api/threads/{UUID(int=1)}/runs/{UUID(int=2)}"
    assert routes.find(_scope("GET", run)) is not None
    assert routes.find(_scope("GET", f"{run}/stream")) is None
    cancel = _scope("POST", f"{run}/cancel")
    assert routes.find(cancel) is not None
    assert routes.find({**cancel, "query_string": b"wait=1"}) is None
    assert routes.find(_scope("DELETE", run)) is None
    assert routes.find({**_scope("GET", run), "root_path": "/parley"}) is None
    assert routes.find({"type": "websocket", "path": run}) is None
