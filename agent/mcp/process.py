"""The process of a stdio server: its messages, its last words, and its end with all that it started."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from subprocess import PIPE
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage
from pydantic import ValidationError

from agent.errors import McpServerUnusable
from agent.mcp.server_config import McpServerConfig

GRACE_S: Final = 2.0
"""How long a server may take to end when its input ends, before it is signalled."""
SIGNAL_S: Final = 1.0
"""How long it may take then, before it is killed."""
TAIL_CHARS: Final = 4096
MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
"""A longer line is no message; it would only fill the memory."""

Incoming = SessionMessage | Exception


class StderrTail:
    """The last that a server's process wrote to its standard error. For the log: it may hold secrets."""

    def __init__(self) -> None:
        self.text = ""

    def append(self, said: bytes) -> None:
        """Keep what it wrote, the newest `TAIL_CHARS` of it."""
        self.text = (self.text + said.decode("utf-8", "replace"))[-TAIL_CHARS:]


@asynccontextmanager
async def run_server_process(
    config: McpServerConfig, words: StderrTail
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server; yield the streams that a session of the SDK wants.

    It gets PATH, HOME and the like, and the `env` of its entry: nothing else of ours. On leaving its input ends;
    then it is signalled, then killed, with all that it started and that stayed in its group. That is done to the
    end also where the leaving task is cancelled.

    Raises:
        OSError: It cannot be started.
    """
    process = await anyio.open_process(
        [config.command or "", *config.args],
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**get_default_environment(), **config.env},
        start_new_session=True,
    )
    inward, reader = anyio.create_memory_object_stream[Incoming](0)
    writer, outward = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        try:
            tasks.start_soon(_read, _given(process.stdout), inward)
            tasks.start_soon(_write, outward, _given(process.stdin))
            tasks.start_soon(_listen, _given(process.stderr), words)
            yield reader, writer
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            for stream in (inward, reader, writer, outward):
                stream.close()
            tasks.cancel_scope.cancel()


async def _read(output: ByteReceiveStream, inward: MemoryObjectSendStream[Incoming]) -> None:
    """Pass messages on, one a line; the end of the stream is the end of the server.

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
                    await inward.send(_message(line))
                pieces, size = [other], len(other)


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(JSONRPCMessage.model_validate_json(line))
    except ValidationError as error:
        # Servers print all kinds of things; the session passes over what is no message.
        return error


async def _write(outward: MemoryObjectReceiveStream[SessionMessage], entry: ByteSendStream) -> None:
    with outward, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for sent in outward:
            text = sent.message.model_dump_json(by_alias=True, exclude_none=True)
            await entry.send(text.encode() + b"\n")


async def _listen(errors: ByteReceiveStream, words: StderrTail) -> None:
    """Take what the server writes to its standard error, so that it never waits for us."""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for chunk in errors:
            words.append(chunk)


async def _end(process: Process) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await _given(process.stdin).aclose()
    with anyio.move_on_after(GRACE_S):
        await process.wait()
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with anyio.move_on_after(SIGNAL_S):
            await process.wait()
    # Also when the server itself has ended: what it started may not have.
    _signal(process, signal.SIGKILL)
    await process.aclose()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _given(stream: Any) -> Any:  # noqa: ANN401 - a stream that `PIPE` promises
    assert stream is not None  # noqa: S101 - for the type checker
    return stream
