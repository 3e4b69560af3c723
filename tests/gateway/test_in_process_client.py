"""What the SDK's client of this process asks for over HTTP, and what it does without."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError
from starlette.types import Receive, Scope, Send

from gateway.in_process_client import InProcessLangGraphClient
from gateway.transport import InProcessClient
from tests.gateway.langgraph_server import ApiServer, serving

UNKNOWN = "00000000-0000-0000-0000-000000000000"


@asynccontextmanager
async def client_of(server: ApiServer, asked: list[str]) -> AsyncIterator[Any]:
    """Yield a client, untyped, as tests also send what it forbids; note what it asks for over HTTP."""

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await server.app(scope, receive, send)

    async with InProcessClient(noting, base_url=server.url, timeout=20.0) as http:
        yield InProcessLangGraphClient(http, server.app)


async def events(parts: AsyncIterator[Any]) -> list[tuple[str, Any]]:
    return [(part.event, part.data) async for part in parts]


async def test_a_run_is_started_and_read_without_http(tmp_path: Path) -> None:
    asked: list[str] = []
    async with serving(tmp_path) as server, client_of(server, asked) as client:
        thread_id = (await client.threads.create())["thread_id"]
        parts = await events(client.runs.stream(thread_id, "instant", input={"n": 1}))
        assert [name for name, _ in parts] == ["metadata", "values", "values", "end"]
        assert parts[-2][1]["n"] == 2
        [run] = await client.runs.list(thread_id)
        assert (run["run_id"], run["status"]) == (parts[0][1]["run_id"], "success")
    assert asked == ["/api/threads", f"/api/threads/{thread_id}/runs"]


async def test_the_events_are_those_of_the_stream_over_http(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server, []) as client:
        thread_id = (await client.threads.create())["thread_id"]
        modes = ["values", "updates", "messages-tuple"]
        direct = [part async for part in client.runs.stream(thread_id, "agent", stream_mode=modes)]
        run_id = direct[0].data["run_id"]
        joined = client.runs.join_stream(thread_id, run_id, last_event_id="-1")
        assert direct == [part async for part in joined]


@pytest.mark.parametrize(
    "more",
    [{"on_disconnect": "cancel"}, {"headers": {"traceparent": "00-1-1-00"}}],
    ids=["cancel", "headers"],
)
async def test_what_needs_a_request_is_one(tmp_path: Path, more: dict[str, Any]) -> None:
    asked: list[str] = []
    async with serving(tmp_path) as server, client_of(server, asked) as client:
        thread_id = (await client.threads.create())["thread_id"]
        parts = await events(client.runs.stream(thread_id, "instant", input={"n": 1}, **more))
        assert parts[-1][0] == "end"
    assert asked[-1] == f"/api/threads/{thread_id}/runs/stream"


async def test_a_refusal_is_the_error_of_the_response(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server, []) as client:
        with pytest.raises(NotFoundError):
            await events(client.runs.stream(UNKNOWN, "instant", input={"n": 1}))
        thread_id = (await client.threads.create())["thread_id"]
        with pytest.raises(UnprocessableEntityError):
            await events(client.runs.stream(thread_id, "instant", multitask_strategy="unheard of"))
        await client.runs.create(thread_id, "slow", input={"n": 1})
        with pytest.raises(ConflictError):
            await events(client.runs.stream(thread_id, "instant", multitask_strategy="reject"))
        assert len(await client.runs.list(thread_id)) == 1


async def test_a_run_shares_no_object_with_its_caller(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, client_of(server, []) as client:
        thread_id = (await client.threads.create())["thread_id"]
        files: list[str] = []
        message = {"role": "user", "content": "hi", "additional_kwargs": {"files": files}}
        stream = client.runs.stream(thread_id, "agent", input={"messages": [message]})
        await anext(stream)
        files.append("of the caller")
        await events(stream)
        state = await client.threads.get_state(thread_id)
        assert state["values"]["messages"][0]["additional_kwargs"] == {"files": []}
