"""Sandbox with bubblewrap. Commands see only the thread's folders, have no network, and have resource limits."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread
from typing_extensions import override

from agent.errors import SandboxError
from agent.paths import Mount, MountTable
from agent.sandbox.bubblewrap_args import (
    BWRAP,
    BubblewrapOptions,
    ProcessLimits,
    bubblewrap_process,
    sandbox_uid,
)
from agent.sandbox.disk import DiskMeter, DiskUsage, measure_usage
from agent.sandbox.local import FolderSandboxProvider, Shell
from agent.sandbox.mounts import SharedMounts, no_shared_mounts
from agent.sandbox.process import ProcessSpec, run_process
from agent.sandbox.result import CommandResult, OutputTail
from agent.sandbox.watchdog import CommandWatchdog
from agent.thread_storage import ThreadStorage

PROBE_S = 20.0
"""Time limit for the test command, seconds. It usually takes 20 ms, but more on a busy machine."""

CONTAINER_MARKS = ("/etc/parley-container", "/.dockerenv", "/run/.containerenv")
"""Files that only containers have (Parley's image, Docker, podman). Some read-only containers lack them."""

CONTAINER_HINT = "the container's profile must allow it: docs/howto/run-in-docker.md"

_KILLED = (137, 152)  # exit codes after SIGKILL and SIGXCPU

FULL = "This conversation is out of disk space, so the command could not write files. Delete files you do not need."


class BubblewrapSandboxProvider(FolderSandboxProvider):
    """Provides each thread with its folders, and a shell that sees nothing else.

    Args:
        folders: Threads' folders.
        mounts: Configured mounts.
        shared: Mounts that all threads share.
        options: Limits and environment of commands.
    """

    kind = "bubblewrap"

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Mount] = (),
        shared: SharedMounts = no_shared_mounts,
        options: BubblewrapOptions | None = None,
    ) -> None:
        self._options = options or BubblewrapOptions()
        super().__init__(folders, mounts=mounts, shared=shared, disk=self._options.disk)

    @property
    @override
    def description(self) -> str:
        return "bubblewrap: bash with the thread's own folders and no network"

    @property
    @override
    def has_network(self) -> bool:
        return False

    @override
    def _shell(self, thread_id: str, table: MountTable) -> Shell:
        shell = BubblewrapShell(
            table=table,
            meter=self._meter(thread_id),
            uid=sandbox_uid(thread_id),
            options=self._options,
        )
        return shell.run


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapShell:
    """Runs commands in one thread's folders.

    Attributes:
        table: The mounts that commands see, besides system folders.
        meter: Measures the thread's files.
        uid: The user that commands run as; None = in a user namespace.
        options: Limits and environment.
    """

    table: MountTable
    meter: DiskMeter
    uid: int | None
    options: BubblewrapOptions

    async def run(self, command: str, timeout_s: float, output: OutputTail | None = None) -> str:
        """Run a command; see `Sandbox.execute`.

        Raises:
            SandboxError: The command cannot be started.
        """
        before = await anyio.to_thread.run_sync(self._measure)
        is_full = bool(before.problem(self.options.disk)) or self.meter.is_disk_low()
        watchdog = CommandWatchdog(
            meter=self.meter,
            memory_mb=self.options.limits.memory_mb,
            file_mb=self.options.limits.file_mb,
        )
        with ExitStack() as stack:
            spec = await anyio.to_thread.run_sync(
                lambda: stack.enter_context(self._process(command, is_full=is_full))
            )
            result = await run_process(
                spec, timeout_s=timeout_s, watchdog=watchdog.watch, output=output
            )
        return await anyio.to_thread.run_sync(lambda: self._text(result, is_full=is_full))

    def _text(self, result: CommandResult, *, is_full: bool) -> str:
        """Return the result for the model. Blocking: measures the disk and decodes outputs of several megabytes."""
        text = self._explained(result).text()
        after = self._measure()
        if note := FULL if is_full else after.problem(self.options.disk):
            text += f"\n{note}"
        return self.table.mask_host_paths(text)

    def _measure(self) -> DiskUsage:
        try:
            return self.meter.count(self.uid)
        except OSError as error:
            raise SandboxError("the conversation's folders cannot be prepared") from error

    def _explained(self, result: CommandResult) -> CommandResult:
        if result.code not in _KILLED or result.note:
            return result
        limits = self.options.limits
        note = (
            f"It was killed. Each process may use {limits.cpu_s} s of CPU time; together they may use "
            f"{limits.memory_mb} MB of memory."
        )
        return replace(result, note=note)

    def _process(self, command: str, *, is_full: bool) -> AbstractContextManager[ProcessSpec]:
        options = self.options
        if is_full:  # commands may still delete files, but not write
            options = replace(options, limits=replace(options.limits, file_mb=0))
        return bubblewrap_process(command, self.table, uid=self.uid, options=options)


def probe_bubblewrap(
    program: str = BWRAP, container_marks: Sequence[str] = CONTAINER_MARKS
) -> str | None:
    """Run a test command in a temporary folder. Return why it fails, or None. Blocking.

    Args:
        program: The path of bubblewrap.
        container_marks: If one of these files exists, this is a container, and the reason includes a hint.
    """
    if shutil.which(program) is None:
        return "bubblewrap is not installed"
    try:
        with tempfile.TemporaryDirectory(prefix="parley-") as home:
            problem = _run_test(Path(home), program)
    except (OSError, SandboxError, subprocess.SubprocessError) as error:
        return f"the test command failed: {type(error).__name__}"
    is_contained = any(Path(mark).exists() for mark in container_marks)
    return f"{problem}; {CONTAINER_HINT}" if problem and is_contained else problem


def _run_test(home: Path, program: str) -> str | None:
    folders = ThreadStorage(home).folders("trial")
    folders.create()
    uid = sandbox_uid("trial")
    measure_usage(folders.root, uid)
    table = MountTable(folders.mounts())
    command = "echo works > file && cat file && ulimit -u"
    options = BubblewrapOptions(limits=ProcessLimits(processes=51), program=program)
    with bubblewrap_process(command, table, uid=uid, options=options) as spec:
        done = subprocess.run(  # noqa: S603 - a fixed command
            spec.argv,
            env=spec.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
            pass_fds=spec.descriptors,
        )
    if done.stdout.split() == [b"works", b"51"]:
        return None
    errors = table.mask_host_paths(done.stderr.decode("utf-8", "replace")).strip()
    return errors.splitlines()[-1][:200] if errors else f"it exited with code {done.returncode}"
