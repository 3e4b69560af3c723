"""Named tokens and long connections: requests over a WebSocket, and streams that end when their token is revoked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.api_tokens import ApiTokenLookup
from gateway.app import network_app
from gateway.compose import open_app
from gateway.config import load_config
from gateway.serving.listener import open_listener
from gateway.serving.server import HttpServer
from gateway.table_copy import MAX_AGE_S
from store.api_tokens import ApiTokenStore, token_digest
from store.config import StoreConfig
from store.database import Database
from tests.fakes.clock import ManualClock
from tests.gateway.composed import TOKEN
from tests.ports import free_port

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """A service on a port, seen by the operator."""

    port: int
    operator: httpx.AsyncClient

    async def token(self, name: str, scope: str) -> dict[str, str]:
        """Create a token. Return the header that sends it."""
        wanted = {"name": name, "scope": scope}
        made = await self.operator.post("/api/tokens", json=wanted)
        assert made.status_code == 201, made.text
        return {"X-Api-Key": str(made.json()["token"])}

    async def revoke(self, name: str) -> None:
        assert (await self.operator.delete(f"/api/tokens/{name}")).status_code == 204

    def socket(self, thread: str) -> str:
        """Return the address of a thread's WebSocket."""
        return f"ws://127.0.0.1:{self.port}/api/threads/{thread}/stream/events"


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[RunningService]:
    port = free_port()
    file = folder / "config.yaml"
    file.write_text(f"gateway: {{port: {port}}}")
    home = {"PARLEY_HOME": str(folder / "home"), "PARLEY_ADMIN_TOKEN": TOKEN}
    config = load_config(str(file), home)
    async with open_app(config) as app:
        with open_listener(config.gateway) as door:
            server = HttpServer(network_app(app, config.gateway, token=TOKEN), door)
            base, token = f"http://127.0.0.1:{port}", {"X-Api-Key": TOKEN}
            async with (
                anyio.create_task_group() as tasks,
                httpx.AsyncClient(base_url=base, headers=token, trust_env=False) as operator,
            ):
                tasks.start_soon(server.run_until_stopped)
                with anyio.fail_after(20):
                    await server.ready.wait()
                yield RunningService(port=port, operator=operator)
                server.stop()


def start(number: int = 1) -> str:
    """Return a command that starts a run."""
    params = {"assistant_id": "lead_agent", "input": HELLO}
    return orjson.dumps({"id": number, "method": "run.start", "params": params}).decode()


async def ask(socket: Any, command: str) -> dict[str, Any]:  # noqa: ANN401 - websockets' connection
    with anyio.fail_after(20):
        await socket.send(command)
        return dict(orjson.loads(await socket.recv()))


async def test_a_read_token_starts_no_run_over_a_websocket(tmp_path: Path) -> None:
    """A POST to its path only reads, but commands over the WebSocket start runs and answer questions."""
    thread = str(uuid4())
    async with served(tmp_path) as service:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(
                service.socket(thread), additional_headers=await service.token("a", "read")
            ) as socket:
                await ask(socket, start())
        assert refused.value.response.status_code == 403
        assert (await service.operator.get(f"/api/threads/{thread}")).status_code == 404
        operator = await service.token("b", "operator")
        async with connect(service.socket(thread), additional_headers=operator) as socket:
            assert (await ask(socket, start()))["type"] == "success"


async def test_a_websocket_ends_with_its_token(tmp_path: Path) -> None:
    thread = str(uuid4())
    async with served(tmp_path) as service:
        headers = await service.token("bot", "operator")
        async with connect(service.socket(thread), additional_headers=headers) as socket:
            assert (await ask(socket, start()))["type"] == "success"
            await service.revoke("bot")
            with pytest.raises(ConnectionClosed) as closed:
                await ask(socket, start(2))
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        runs = (await service.operator.get(f"/api/threads/{thread}/runs")).json()
        assert len(runs) == 1


async def test_a_websocket_without_a_token_is_sent_nothing_more(tmp_path: Path) -> None:
    thread = str(uuid4())
    async with served(tmp_path) as service:
        headers = await service.token("bot", "operator")
        async with connect(service.socket(thread), additional_headers=headers) as socket:
            wanted = {
                "id": 1,
                "method": "subscription.subscribe",
                "params": {"channels": ["values"]},
            }
            assert (await ask(socket, orjson.dumps(wanted).decode()))["type"] == "success"
            await service.revoke("bot")
            body = {"assistant_id": "lead_agent", "input": HELLO, "if_not_exists": "create"}
            await service.operator.post(f"/api/threads/{thread}/runs/wait", json=body)
            with anyio.fail_after(20), pytest.raises(ConnectionClosed):
                await socket.recv()


async def test_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    thread = str(uuid4())
    async with served(tmp_path) as service:
        await service.operator.post("/api/threads", json={"thread_id": thread})
        headers = {**await service.token("dashboard", "read"), "Accept": "text/event-stream"}
        async with (
            httpx.AsyncClient(base_url=service.operator.base_url, trust_env=False) as client,
            client.stream("GET", f"/api/threads/{thread}/stream", headers=headers) as stream,
        ):
            assert stream.status_code == 200
            await service.revoke("dashboard")
            body = {"assistant_id": "lead_agent", "input": HELLO}
            await service.operator.post(f"/api/threads/{thread}/runs/wait", json=body)
            with anyio.fail_after(20):
                assert b"values" not in await stream.aread()


async def test_a_request_that_revokes_its_own_token_is_answered(tmp_path: Path) -> None:
    async with served(tmp_path) as service:
        headers = await service.token("mine", "admin")
        async with httpx.AsyncClient(
            base_url=service.operator.base_url, headers=headers, trust_env=False
        ) as client:
            rotated = await client.post("/api/tokens/mine/rotate")
            assert (rotated.status_code, "token" in rotated.json()) == (200, True)
            again = {"X-Api-Key": str(rotated.json()["token"])}
            assert (await client.delete("/api/tokens/mine", headers=again)).status_code == 204
            assert (await client.get("/api/models", headers=again)).status_code == 401


async def test_connections_outlast_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Database.open(StoreConfig(), tmp_path) as database:
        store = ApiTokenStore(database, now=clock)
        lookup = ApiTokenLookup(store, clock=clock, now=clock)
        lasting, short = (
            await store.create("a", "read"),
            await store.create("b", "read", lifetime_s=9),
        )
        assert not await lookup.has_ended(token_digest(lasting))
        clock.now += 10
        assert await lookup.has_ended(token_digest(short))
    clock.now += MAX_AGE_S + 1
    assert await lookup.find(lasting) is None
    assert not await lookup.has_ended(token_digest(lasting))
