"""Runs one command in its own process group, with bounded output and a deadline. Leaves no process running."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process

from agent.errors import SandboxError
from agent.sandbox.result import CommandResult, OutputBuffer, OutputTail, exit_code
from agent.subprocesses import start_process

DRAIN_S = 0.5
"""How long to read output after the shell ends, seconds. A child outside the group may hold the pipe open forever."""

TIMED_OUT = 124  # exit code, as in timeout(1)

Output = OutputBuffer | OutputTail

Watchdog = Callable[[int], Awaitable[str]]
"""Watches a process by its id. Returns a sentence for the model when the command must stop; otherwise never returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How to start a command.

    Attributes:
        argv: Program and arguments.
        environment: All of its environment variables; None = a copy of this process's.
        cwd: Working folder.
        descriptors: Open files that it inherits.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] | None = field(default_factory=dict)
    cwd: Path = Path("/")
    descriptors: Sequence[int] = ()


async def run_process(
    spec: ProcessSpec,
    *,
    timeout_s: float,
    watchdog: Watchdog | None = None,
    output: OutputTail | None = None,
) -> CommandResult:
    """Run a command until it ends, its deadline passes, or the watchdog stops it.

    Its stdin is empty. With `output`, stdout and stderr go there instead of into the result. Its process group is
    killed when the command ends or is stopped, or when this call is canceled.

    Raises:
        SandboxError: The command cannot be started.
    """
    out, err, notes = OutputBuffer(), OutputBuffer(), list[str]()
    async with await _start(spec) as process:
        try:
            with anyio.move_on_after(timeout_s) as deadline:
                await _communicate(process, (output or out, output or err), watchdog, notes)
        finally:
            _kill_group(process.pid)
        # The process was killed or has ended, so this returns at once.
        code = exit_code(await process.wait())
    if deadline.cancelled_caught:
        code, notes = TIMED_OUT, [f"The command was stopped: it took longer than {timeout_s:g} s."]
    return CommandResult(
        stdout=out.text(),
        stderr=err.text(),
        code=code,
        note=" ".join(notes),
        omission=out.note() or err.note(),
    )


async def _start(spec: ProcessSpec) -> Process:
    try:
        return await start_process(
            list(spec.argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=spec.cwd,
            env=spec.environment,
            start_new_session=True,
            pass_fds=spec.descriptors,
        )
    except (OSError, ValueError) as error:
        raise SandboxError("the shell cannot be started") from error


async def _communicate(
    process: Process,
    buffers: tuple[Output, Output],
    watchdog: Watchdog | None,
    notes: list[str],
) -> None:
    """Read the output until the process ends; the watchdog may kill it and add a note."""
    async with anyio.create_task_group() as group:
        if watchdog is not None:
            group.start_soon(_watch, watchdog, process, notes)
        async with anyio.create_task_group() as readers:
            for stream, buffer in zip((process.stdout, process.stderr), buffers, strict=True):
                readers.start_soon(_read, stream, buffer)
            await process.wait()
            _kill_group(process.pid)
            readers.cancel_scope.deadline = anyio.current_time() + DRAIN_S
        group.cancel_scope.cancel()


async def _read(stream: ByteReceiveStream | None, buffer: Output) -> None:
    if stream is None:
        return
    with contextlib.suppress(anyio.BrokenResourceError):
        async for piece in stream:
            buffer.append(piece)


async def _watch(watchdog: Watchdog, process: Process, notes: list[str]) -> None:
    notes.append(await watchdog(process.pid))
    _kill_group(process.pid)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
