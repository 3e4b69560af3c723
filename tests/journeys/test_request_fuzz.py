"""Damaged requests to the running service: heads, WebSocket frames and commands, paging parameters, schedules.

Each input can be reproduced: the message of a failure names PARLEY_FUZZ_SEED and the number of the input.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any
from uuid import uuid4

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.journeys.service import Service, serving
from tests.lab.fuzz.mutation import VALUES, damage_bytes, damage_json, damage_text, to_json

LONG = os.environ.get("PARLEY_TEST_LONG") == "1"
COUNT = 20_000 if LONG else 150
SEED = int(os.environ.get("PARLEY_FUZZ_SEED") or SystemRandom().randrange(10**6))
ANSWER_S = 30.0
MAY_BE_5XX = {501, 503, 505}
COMMANDS_AT_ONCE = 150
"""Number of commands per connection, within its rate limit."""

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

THREAD = "0190f6e2-1111-7000-8000-000000000001"
SOCKET = f"/api/threads/{THREAD}/stream/events"
HEADERS = {
    "Host": "localhost",
    "Authorization": "Bearer wrong",
    "X-Api-Key": "wrong",
    "Cookie": "session=1; theme=dark",
    "Origin": "https://page.example",
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": "2",
    "Transfer-Encoding": "chunked",
    "Expect": "100-continue",
    "Accept": "text/event-stream;q=0.9, */*",
    "Accept-Encoding": "gzip, br;q=0",
    "Last-Event-ID": "1700000000000-0",
    "Range": "bytes=0-1",
    "If-None-Match": 'W/"1"',
    "X-Forwarded-For": "192.0.2.1, 127.0.0.1",
    "X-Forwarded-Proto": "https",
    "X-Request-ID": "abc",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "Connection": "keep-alive",
}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "parley, parley.token.wrong",
    "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
}
PATHS = (
    "/health", "/api/models", f"/api/threads/{THREAD}", "/api/threads/search", "/webhooks/slack", "/docs/x", "/metrics",
    f"/api/threads/{THREAD}/artifacts/mnt/user-data/outputs/a.txt",
)  # fmt: skip
STRANGE = (
    b"",
    b"\xff",
    b"http://[",
    b"http://[::1",
    b"\xc3\x28",
    b"," * 300,
    b"9" * 30,
    b"-1",
    b"\x00",
    b"a" * 5000,
)


def inputs(kind: str, count: int = COUNT) -> Iterator[tuple[str, Random]]:
    """Yield an input's name in failures, and its seed."""
    for number in range(count):
        name = f"PARLEY_FUZZ_SEED={SEED} {kind} {number}"
        yield name, Random(f"{SEED}/{kind}/{number}")  # noqa: S311 - no secrets


def request_head(rng: Random, token: str) -> bytes:
    """Return a request damaged in random places."""
    is_socket = rng.random() < 0.3
    known = {**HEADERS, **UPGRADE} if is_socket else HEADERS
    headers = {"Host": b"localhost"} | (
        {k: v.encode() for k, v in UPGRADE.items()} if is_socket else {}
    )
    if rng.random() < 0.7:
        headers["Authorization"] = b"Bearer " + token.encode()
    for name in rng.sample(list(known), rng.randint(1, 4)):
        damaged = damage_text(rng, known[name]).encode("utf-8", "surrogatepass")
        value = rng.choice((rng.choice(STRANGE), damaged))
        headers[name] = (
            value if rng.random() < 0.3 else value.replace(b"\r", b"").replace(b"\n", b"")
        )
    path = SOCKET if is_socket else rng.choice(PATHS)
    method = "GET" if is_socket else rng.choice(("GET", "POST", "HEAD", "PUT"))
    start = f"{method} {path} HTTP/1.1\r\n".encode()
    start = damage_bytes(rng, start) if rng.random() < 0.1 else start
    return start + b"".join(b"%s: %s\r\n" % (k.encode(), v) for k, v in headers.items()) + b"\r\n{}"


async def answer_to(port: int, sent: bytes) -> bytes:
    """Send only these bytes. Return everything received until the connection is closed."""
    received = b""
    with anyio.fail_after(ANSWER_S):
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                await connection.send(sent)
                await connection.send_eof()
                while True:
                    received += await connection.receive()
    return received


async def assert_unharmed(service: Service) -> None:
    """Check that the service responds and had no internal error."""
    async with service.client() as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/api/models")).status_code == 200
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line[:1] == "{"]
    assert [line for line in lines if line["level"] in ("error", "critical")] == []
    assert "Traceback" not in service.log.read_text()


def token_of(service: Service) -> str:
    return (service.files / "admin_token").read_text().strip()


async def test_no_head_of_a_request_harms(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as service:
        for name, rng in inputs("heads"):
            sent = request_head(rng, token_of(service))
            received = await answer_to(service.port, sent)
            if received:
                assert received.startswith(b"HTTP/1.1 "), (name, sent, received)
                status = int(received[9:12])
                assert status < 500 or status in MAY_BE_5XX, (name, sent, received)
        await assert_unharmed(service)


COMMANDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "method": "subscription.subscribe", "params": {"channels": ["lifecycle"], "since": 1, "namespaces": []}},
    {"id": 2, "method": "subscription.unsubscribe", "params": {"subscription_id": "x"}},
    {"id": 3, "method": "subscription.reconnect",
     "params": {"run_id": THREAD, "subscriptions": ["x"], "last_event_id": "1"}},
    {"id": 4, "method": "state.get", "params": {"checkpoint": {"checkpoint_id": THREAD}, "subgraphs": True}},
    {"id": 5, "method": "state.listCheckpoints", "params": {"limit": 10, "before": {"checkpoint_id": THREAD}}},
    {"id": 6, "method": "state.fork", "params": {"checkpoint_id": THREAD, "input": None, "config": {}}},
    {"id": 7, "method": "agent.getTree", "params": {"run_id": THREAD}},
    {"id": 8, "method": "input.respond", "params": {"interrupt_id": "x", "response": {"a": 1}, "namespace": []}},
    {"id": 9, "method": "input.inject", "params": {"message": {"role": "user", "content": "hi"}}},
    {"id": 10, "method": "run.start",
     "params": {"assistant_id": "nobody", "input": {"messages": []}, "config": {"configurable": {}}, "metadata": {}}},
)  # fmt: skip


def socket_url(service: Service) -> str:
    return f"ws://127.0.0.1:{service.port}/api/threads/{uuid4()}/stream/events"


async def test_each_damaged_command_over_a_websocket_has_one_reply(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as service:
        headers = {"Authorization": f"Bearer {token_of(service)}"}
        pending = list(inputs("commands"))
        for start in range(0, len(pending), COMMANDS_AT_ONCE):
            async with connect(socket_url(service), additional_headers=headers) as socket:
                for name, rng in pending[start : start + COMMANDS_AT_ONCE]:
                    sent = to_json(damage_json(rng, rng.choice(COMMANDS), COMMANDS))
                    sent = damage_bytes(rng, sent) if rng.random() < 0.3 else sent
                    text = sent.decode("utf-8", "replace")
                    reply = await _reply_to(socket, text if rng.random() < 0.7 else sent)
                    assert reply["type"] in ("success", "error"), (name, sent, reply)
                    assert reply.get("error") != "unknown_error", (name, sent, reply)
        await assert_unharmed(service)


async def _reply_to(socket: ClientConnection, sent: str | bytes) -> dict[str, Any]:
    """Send a command. Return its reply, or the end of the connection."""
    with anyio.fail_after(ANSWER_S):
        await socket.send(sent)
        reply: dict[str, Any] = {"type": "event"}
        while reply["type"] == "event":
            try:
                reply = json.loads(await socket.recv())
            except ConnectionClosed as end:
                return {"type": "closed", "why": str(end)}
    return reply


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """Return a masked frame of a client (RFC 6455 5.2)."""
    length = len(payload)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + length.to_bytes(2)
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


async def test_no_frame_of_a_websocket_harms(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as service:
        for name, rng in inputs("frames"):
            key = base64.b64encode(rng.randbytes(16)).decode()
            headers = UPGRADE | {"Host": "localhost", "Sec-WebSocket-Key": key}
            headers |= {"Authorization": f"Bearer {token_of(service)}"}
            del headers["Sec-WebSocket-Protocol"]
            head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            command = to_json(rng.choice(COMMANDS))
            frames = frame(command, rng.choice((0, 1, 2, 8, 9, 10, 11))) + frame(command)
            sent = f"GET {SOCKET} HTTP/1.1\r\n{head}\r\n".encode() + damage_bytes(rng, frames)
            received = await answer_to(service.port, sent)
            assert received.startswith(b"HTTP/1.1 101 "), (name, sent, received)
        await assert_unharmed(service)


async def test_no_parameter_of_a_list_and_no_schedule_harms(tmp_path: Path) -> None:
    async with serving(tmp_path, {}) as service, service.client() as client:
        described = (await client.get("/api/openapi.json", timeout=60)).json()["paths"]
        lists = list(_lists(described))
        assert len(lists) > 20
        for name, rng in inputs("lists"):
            method, path, parameters = rng.choice(lists)
            url = path.replace("{thread_id}", THREAD).replace("{assistant_id}", "lead_agent")
            given = {one: _strange(rng) for one in parameters}
            query = given if method == "GET" else None
            body = to_json(damage_json(rng, given)) if method == "POST" else b""
            headers = {"Content-Type": "application/json"}
            answer = await client.request(method, url, params=query, content=body, headers=headers)
            asked = (name, method, url, given, answer.text[:300])
            assert answer.status_code < 500 or answer.status_code in MAY_BE_5XX, asked
        await assert_unharmed(service)


def _lists(described: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield method, path and parameters of each route that returns a list or takes a schedule."""
    for path, operations in described.items():
        if path.endswith(("/search", "/count", "/crons", "/namespaces")) and "post" in operations:
            yield (
                "POST",
                path,
                [
                    "limit",
                    "offset",
                    "sort_by",
                    "sort_order",
                    "metadata",
                    "schedule",
                    "select",
                    "before",
                ],
            )
        named = [one["name"] for one in operations.get("get", {}).get("parameters", ())]
        queried = [name for name in named if f"{{{name}}}" not in path]
        if queried and not path.endswith(("/stream", "/events")):
            yield "GET", path, queried


def _strange(rng: Random) -> Any:  # noqa: ANN401 - JSON
    cron = damage_text(rng, rng.choice(("*/5 * * * *", "0 0 31 2 *", "@hourly", "0-59/0 * * * *")))
    value = rng.choice((*VALUES, cron, "1e3", "١", "0x10", 2**63, "2**31", "\x00"))
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
