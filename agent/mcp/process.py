"""Runs the process of a stdio MCP server: messages, stderr, and termination of its process group."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage
from pydantic import ValidationError

from agent.errors import McpServerUnusable
from agent.mcp.message_repair import repair_message
from agent.mcp.response_limits import MAX_MESSAGE_BYTES
from agent.mcp.server_config import McpServerConfig
from agent.subprocesses import start_process

GRACE_S = 2.0
"""How long a server may take to exit after its stdin is closed, seconds; then it gets SIGTERM."""
SIGNAL_S = 1.0
"""How long a server may take to exit after SIGTERM, seconds; then it gets SIGKILL."""
TAIL_CHARS = 4096

Incoming = SessionMessage | Exception


class StderrTail:
    """The end of a server's stderr output. It may contain secrets."""

    def __init__(self) -> None:
        self.text = ""

    def append(self, output: bytes) -> None:
        """Add output; the last `TAIL_CHARS` are kept."""
        self.text = (self.text + output.decode("utf-8", "replace"))[-TAIL_CHARS:]


@asynccontextmanager
async def run_server_process(
    config: McpServerConfig, stderr: StderrTail, *, cwd: str | None = None
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server, in this process's working folder if `cwd` is None; yield the streams for the SDK's session.

    Its environment consists of PATH, HOME and similar variables, and its configured `env`. On exit, its stdin is
    closed; then its process group gets SIGTERM, then SIGKILL. Canceling the task does not interrupt the termination.

    Raises:
        OSError: The server cannot be started.
    """
    process = await start_process(
        [config.command or "", *config.args],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**get_default_environment(), **config.env},
        cwd=cwd,
        start_new_session=True,
    )
    inward, reader = anyio.create_memory_object_stream[Incoming](0)
    writer, outward = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(_read, _require(process.stdout), inward)
            tasks.start_soon(_write, outward, _require(process.stdin))
            tasks.start_soon(_read_stderr, _require(process.stderr), stderr)
            yield reader, writer
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            for stream in (inward, reader, writer, outward):
                stream.close()
            tasks.cancel_scope.cancel()


async def _read(output: ByteReceiveStream, inward: MemoryObjectSendStream[Incoming]) -> None:
    """Forward messages, one per line, until the server closes its stdout.

    Raises:
        McpServerUnusable: A line is too long.
    """
    pieces: list[bytes] = []
    size = 0
    with inward, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for chunk in output:
            first, *others = chunk.split(b"\n")
            pieces.append(first)
            size += len(first)
            if size > MAX_MESSAGE_BYTES:
                raise McpServerUnusable("it sends lines that are too long")
            for other in others:
                if line := b"".join(pieces).strip():
                    await inward.send(parse_message(line))
                pieces, size = [other], len(other)


def parse_message(line: bytes) -> Incoming:
    """Parse a line. If it is not a message, return the error instead of raising it."""
    try:
        return SessionMessage(JSONRPCMessage.model_validate_json(repair_message(line)))
    except ValidationError as error:
        # Servers also print other text. The session ignores everything that is not a message.
        return error


async def _write(outward: MemoryObjectReceiveStream[SessionMessage], entry: ByteSendStream) -> None:
    with outward, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for sent in outward:
            text = sent.message.model_dump_json(by_alias=True, exclude_none=True)
            await entry.send(text.encode() + b"\n")


async def _read_stderr(errors: ByteReceiveStream, stderr: StderrTail) -> None:
    """Read stderr continuously, so that the server never blocks on it."""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for chunk in errors:
            stderr.append(chunk)


async def _end(process: Process) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await _require(process.stdin).aclose()
    with anyio.move_on_after(GRACE_S):
        await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(SIGNAL_S):
            await process.wait()
    # Even if the server has exited, its children may still be running.
    _signal(process, signal.SIGKILL)
    await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _require(stream: Any) -> Any:  # noqa: ANN401 - a stream that `PIPE` promises
    assert stream is not None  # noqa: S101 - for the type checker
    return stream
