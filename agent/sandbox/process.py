"""Runs one command as a process group of its own: bounded output, a deadline, nothing left behind."""

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
from agent.sandbox.result import CommandResult, OutputBuffer, exit_code

DRAIN_S = 0.5
"""How long output is awaited after the shell has ended: a child that left the group may hold the pipe for ever."""

TIMED_OUT = 124  # the exit code that timeout(1) gives

Watchdog = Callable[[int], Awaitable[str]]
"""Gets the process id; returns, with a sentence for the model, only when the command has to be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How a command is started.

    Attributes:
        argv: Program and arguments.
        environment: All variables that it gets; nothing of this process is inherited.
        cwd: Where it begins.
        descriptors: Open files that it inherits.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    descriptors: Sequence[int] = ()


async def run_process(
    start: ProcessSpec, *, timeout_s: float, watch: Watchdog | None = None
) -> CommandResult:
    """Run a command to its end, its deadline, or what `watch` says.

    Its input is empty. Its process group is killed when it ends, is stopped, or this call is cancelled.

    Raises:
        SandboxError: It cannot be started.
    """
    out, err, notes = OutputBuffer(), OutputBuffer(), list[str]()
    async with await _started(start) as process:
        try:
            with anyio.move_on_after(timeout_s) as deadline:
                await _followed(process, (out, err), watch, notes)
        finally:
            _kill_group(process.pid)
        # Killed or ended: this takes no time.
        code = exit_code(await process.wait())
    if deadline.cancelled_caught:
        code, notes = TIMED_OUT, [f"The command was stopped: it took longer than {timeout_s:g} s."]
    return CommandResult(stdout=out.text(), stderr=err.text(), code=code, note=" ".join(notes))


async def _started(start: ProcessSpec) -> Process:
    try:
        # Shielded: a call that is cancelled just now must get hold of the process, to kill it and wait for it.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                list(start.argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=start.cwd,
                env=dict(start.environment),
                start_new_session=True,
                pass_fds=start.descriptors,
            )
    except (OSError, ValueError) as error:
        raise SandboxError("the shell cannot be started") from error
    return process


async def _followed(
    process: Process,
    tapes: tuple[OutputBuffer, OutputBuffer],
    watch: Watchdog | None,
    notes: list[str],
) -> None:
    """Record the output until the process has ended, or the watch has said why it must not go on."""
    async with anyio.create_task_group() as group:
        if watch is not None:
            group.start_soon(_watched, watch, process, notes)
        async with anyio.create_task_group() as readers:
            for stream, tape in zip((process.stdout, process.stderr), tapes, strict=True):
                readers.start_soon(_recorded, stream, tape)
            await process.wait()
            _kill_group(process.pid)
            readers.cancel_scope.deadline = anyio.current_time() + DRAIN_S
        group.cancel_scope.cancel()


async def _recorded(stream: ByteReceiveStream | None, tape: OutputBuffer) -> None:
    if stream is None:
        return
    with contextlib.suppress(anyio.BrokenResourceError):
        async for piece in stream:
            tape.add(piece)


async def _watched(watch: Watchdog, process: Process, notes: list[str]) -> None:
    notes.append(await watch(process.pid))
    _kill_group(process.pid)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
