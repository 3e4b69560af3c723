"""Runs the process of an ACP agent and exchanges JSON lines with it."""

import contextlib
import json
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from agent.errors import AcpAgentError
from agent.subprocesses import start_process

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 50_000_000
"""Longest message; the same limit as in the ACP library."""

EXIT_S = 2.0
"""How long a process may take to exit after its stdin is closed, seconds; then it is killed."""

_TAIL_CHARS = 2_000


class JsonLineStream:
    """ACP messages over the streams of a process: one JSON object per line."""

    def __init__(self, process: anyio.abc.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise AcpAgentError
        self._input = process.stdin
        self._output = BufferedByteReceiveStream(process.stdout)
        self._sending = anyio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises ConnectionError if the process has ended."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._sending:
                await self._input.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionError("the agent has ended") from error

    async def receive(self) -> dict[str, Any] | None:
        """Read the next message; None at the end. Ignores lines that are not JSON objects."""
        while True:
            try:
                line = await self._output.receive_until(b"\n", MAX_LINE_BYTES)
            except (anyio.IncompleteRead, anyio.EndOfStream, anyio.ClosedResourceError):
                return None
            except (anyio.BrokenResourceError, anyio.DelimiterNotFound):
                return None  # the stream is broken, or the line is too long
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    return message

    async def close(self) -> None:
        """Close the process's stdin, which asks it to exit."""
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._input.aclose()


@asynccontextmanager
async def run_agent_process(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str]
) -> AsyncIterator[JsonLineStream]:
    """Run a program in its own process group. Leaving the block, even by cancellation, kills the group.

    Raises:
        OSError: The program cannot be started.
    """
    process = await start_process(
        command, cwd=folder, env=env, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, process)
            lines = JsonLineStream(process)
            try:
                yield lines
                with anyio.move_on_after(EXIT_S):
                    await lines.close()
                    await process.wait()
            finally:
                _end(process.pid)
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        # Only the caller's block can raise here. Raise its error without the group.
        raise group.exceptions[0] from None
    finally:
        if process.returncode is None:
            _end(process.pid)
        with anyio.CancelScope(shield=True):
            await process.aclose()


def _end(group: int) -> None:
    """Kill a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


async def _drain(process: anyio.abc.Process) -> None:
    """Read stderr continuously, so that the program never blocks on it. Log the last part."""
    tail = b""
    try:
        if process.stderr is not None:
            async for chunk in process.stderr:
                tail = (tail + chunk)[-_TAIL_CHARS:]
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    finally:
        if tail:
            log.info("ACP agent stderr: %s", tail.decode("utf-8", "replace").strip())
