"""MCP servers that send endless data: the amount kept is limited."""

import gzip
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

import anyio
import anyio.abc
import pytest
from mcp.types import CallToolResult, ImageContent

from agent.errors import McpServerUnusable
from agent.mcp.images import image_path, save_images
from agent.mcp.response_limits import COMPRESSED, MAX_MESSAGE_BYTES, TOO_LONG, limited_client
from agent.mcp.results import result_text
from agent.sandbox.disk import DiskLimits, DiskMeter
from agent.thread_storage import ThreadStorage
from tests.agent.test_mcp import mcp, tools_of
from tests.ports import free_port

PIECE = b"x" * 65_536
JSON, EVENTS = "application/json", "text/event-stream"


@dataclass
class Sender:
    """A server that answers each request with a header and then repeats these pieces as long as the client reads."""

    head: str
    pieces: Iterator[bytes]
    url: str = ""
    sent: int = 0
    asked: list[bytes] = field(default_factory=list)

    async def respond(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            self.asked.append(await client.receive())
            await client.send(
                f"HTTP/1.1 200 OK\r\nconnection: close\r\n{self.head}\r\n\r\n".encode()
            )
            try:
                for piece in self.pieces:
                    await client.send(piece)
                    self.sent += len(piece)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


@asynccontextmanager
async def sending(head: str, pieces: Iterator[bytes]) -> AsyncIterator[Sender]:
    sender, port = Sender(head, pieces), free_port()
    sender.url = f"http://127.0.0.1:{port}/mcp"
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, sender.respond)
        yield sender
        tasks.cancel_scope.cancel()


async def read(url: str) -> bytes:
    async with limited_client(trust_env=False) as client:
        return (await client.get(url)).content


@pytest.mark.parametrize(
    ("kind", "piece"),
    [(JSON, PIECE), (JSON, b"1,\n\n" * 16_384), (EVENTS, PIECE), (EVENTS, b"data: a\n" * 8_192)],
)
async def test_a_message_without_end_is_cut_off(kind: str, piece: bytes) -> None:
    async with sending(f"content-type: {kind}", repeat(piece)) as server:
        with pytest.raises(McpServerUnusable, match=TOO_LONG):
            await read(server.url)
        assert server.sent < 2 * MAX_MESSAGE_BYTES


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n"])
async def test_a_stream_of_many_events_goes_on(end: bytes) -> None:
    """It does not matter how the events are split into pieces."""
    count = 2 * MAX_MESSAGE_BYTES // len(PIECE)
    whole = [piece for _ in range(count) for piece in (PIECE, end[:1], end[1:])]
    async with sending(f"content-type: {EVENTS}", iter(whole)) as server:
        assert len(await read(server.url)) == sum(map(len, whole))


async def test_a_compressed_response_is_refused() -> None:
    bomb = gzip.compress(bytes(MAX_MESSAGE_BYTES))
    head = f"content-type: {JSON}\r\ncontent-encoding: gzip"
    async with sending(head, iter([bomb])) as server:
        with pytest.raises(McpServerUnusable, match=COMPRESSED):
            await read(server.url)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_sends_without_end_is_given_up(tmp_path: Path, transport: str) -> None:
    kind = JSON if transport == "http" else EVENTS
    async with sending(f"content-type: {kind}", repeat(PIECE)) as server:
        entry = {"type": transport, "url": server.url}
        limits = {"connect_timeout_seconds": 3, "retry_seconds": 100}
        async with mcp(tmp_path, {"endless": entry}, limits) as servers:
            assert await tools_of(servers) == ()
            (status,) = await servers.statuses()
        assert status.state == "failed"
        assert server.sent < 2 * MAX_MESSAGE_BYTES
        assert b"accept-encoding: identity" in server.asked[0].lower()


def test_images_stay_within_the_quota_of_a_conversation(tmp_path: Path) -> None:
    folders = ThreadStorage(
        tmp_path, lambda root: DiskMeter(root, DiskLimits(quota_mb=1, free_mb=0))
    )
    first, second = (
        ImageContent(type="image", data=b64encode(byte * 600_000).decode(), mimeType="image/png")
        for byte in (b"a", b"b")
    )
    result = CallToolResult(content=[first, second])
    saved = save_images(result, folders.folders("t"), folders.open_meter("t"))
    assert list(saved) == [image_path(first)]
    assert "not shown" in result_text(result, saved)
