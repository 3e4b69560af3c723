"""Commands in bubblewrap: no network, the thread's folders alone, limits on everything. Files as on this machine."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.errors import SandboxError
from agent.paths import Mount as Folder
from agent.paths import MountTable
from agent.sandbox import bubblewrap_args
from agent.sandbox.bubblewrap_args import BWRAP, BubblewrapOptions, ProcessLimits
from agent.sandbox.disk import MAX_DEPTH, DiskUsage, is_disk_low, measure_usage
from agent.sandbox.local import LocalSandbox
from agent.sandbox.locks import PathLocks
from agent.sandbox.mounts import SharedMounts, ThreadMounts, no_shared_mounts
from agent.sandbox.process import ProcessSpec, run_process
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.sandbox.result import CommandResult
from agent.sandbox.watchdog import CommandWatchdog
from agent.thread_storage import ThreadFolders, ThreadStorage

PROBE_S = 20.0
"""How long the trial at start may take; it takes some 20 ms, on a machine under load more."""

_KILLED = (137, 152)  # by SIGKILL, SIGXCPU

FULL = (
    "The conversation's files take all the space that they may, so this command could not write to files. "
    "Delete what is not needed."
)


class BubblewrapSandboxProvider(SandboxProvider):
    """Gives each thread its folders and a shell that sees nothing else.

    Args:
        folders: The threads' folders.
        mounts: Further folders that the agent sees.
        shared: What all threads see besides.
        rules: What commands may use.
    """

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Folder] = (),
        shared: SharedMounts = no_shared_mounts,
        rules: BubblewrapOptions | None = None,
    ) -> None:
        self._tables = ThreadMounts(folders, mounts=mounts, shared=shared)
        self._rules = rules or BubblewrapOptions()
        self._locks = PathLocks()

    @property
    @override
    def description(self) -> str:
        return "bubblewrap: bash with the thread's own folders and no network"

    @property
    @override
    def uses_thread_folders(self) -> bool:
        return True

    @property
    @override
    def can_execute(self) -> bool:
        return True

    @override
    def sandbox_id(self, thread_id: str) -> str:
        self._tables.folders(thread_id)
        return f"bubblewrap:{thread_id}"

    @override
    async def acquire(self, thread_id: str) -> Sandbox:
        table = await self._tables.mount_table(thread_id)
        shell = BubblewrapShell(
            folders=self._tables.folders(thread_id),
            table=table,
            owner=bubblewrap_args.sandbox_uid(thread_id),
            rules=self._rules,
        )
        return LocalSandbox(
            sandbox_id=self.sandbox_id(thread_id), table=table, locks=self._locks, shell=shell.run
        )

    @override
    async def release(self, sandbox_id: str) -> None:
        """Do nothing: between commands nothing runs."""

    @override
    async def aclose(self) -> None:
        """Do nothing: every command has ended with its call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapShell:
    """Runs commands over one thread's folders.

    Attributes:
        folders: The thread's folders.
        table: What is seen of this machine besides the system's folders.
        owner: The user that commands run as; None = in a user namespace.
        rules: What they may use.
    """

    folders: ThreadFolders
    table: MountTable
    owner: int | None
    rules: BubblewrapOptions

    async def run(self, command: str, timeout_s: float) -> str:
        """Run a command, as `Sandbox.execute` says.

        Raises:
            SandboxError: It cannot be started.
        """
        root = self.folders.root
        before = await anyio.to_thread.run_sync(self._survey)
        is_full = await anyio.to_thread.run_sync(self._is_full, before)
        guard = CommandWatchdog(
            folder=root,
            before=before,
            disk=self.rules.disk,
            memory_mb=self.rules.limits.memory_mb,
        )
        with ExitStack() as stack:
            start = await anyio.to_thread.run_sync(
                lambda: stack.enter_context(self._start(command, is_full=is_full))
            )
            outcome = await run_process(start, timeout_s=timeout_s, watch=guard.watch)
        text = self._explained(outcome).text()
        after = await anyio.to_thread.run_sync(self._survey)
        if is_full or after.exceeds(self.rules.disk):
            text += f"\n{FULL if is_full else self._told(after)}"
        return self.table.mask_host_paths(text)

    def _survey(self) -> DiskUsage:
        try:
            return measure_usage(self.folders.root, self.owner)
        except OSError as error:
            raise SandboxError("the conversation's folders cannot be prepared") from error

    def _is_full(self, usage: DiskUsage) -> bool:
        return usage.exceeds(self.rules.disk) or is_disk_low(self.folders.root, self.rules.disk)

    def _explained(self, outcome: CommandResult) -> CommandResult:
        if outcome.code not in _KILLED or outcome.note:
            return outcome
        note = (
            "It was killed. One process may use "
            f"{self.rules.limits.cpu_s} s of processor time, all together "
            f"{self.rules.limits.memory_mb} MB of memory."
        )
        return replace(outcome, note=note)

    def _told(self, usage: DiskUsage) -> str:
        if usage.is_deep:
            return f"Folders lie deeper in each other than {MAX_DEPTH} levels: delete them."
        if usage.entries > self.rules.disk.entries:
            return (
                f"There are more than {self.rules.disk.entries} files: delete what is not needed."
            )
        return (
            f"The conversation's files now take {usage.size // 2**20} MB, more than the "
            f"{self.rules.disk.quota_mb} MB that they may: delete what is not needed."
        )

    def _start(self, command: str, *, is_full: bool) -> AbstractContextManager[ProcessSpec]:
        rules = self.rules
        if is_full:  # it may delete, not write
            rules = replace(rules, limits=replace(rules.limits, file_mb=0))
        return bubblewrap_args.bubblewrap_process(
            command, self.table, owner=self.owner, rules=rules
        )


def probe_bubblewrap(program: str = BWRAP) -> str | None:
    """Run a command in a throw-away folder; return why that does not work here, or None. Blocking."""
    if shutil.which(program) is None:
        return "bubblewrap is not installed"
    try:
        with tempfile.TemporaryDirectory(prefix="parley-") as home:
            return _trial(Path(home), program)
    except (OSError, SandboxError, subprocess.SubprocessError) as error:
        return f"the trial failed: {type(error).__name__}"


def _trial(home: Path, program: str) -> str | None:
    folders = ThreadStorage(home).folders("trial")
    folders.create()
    owner = bubblewrap_args.sandbox_uid("trial")
    measure_usage(folders.root, owner)
    table = MountTable(folders.mounts())
    command = "echo works > file && cat file && ulimit -u"
    rules = BubblewrapOptions(limits=ProcessLimits(processes=51), program=program)
    with bubblewrap_args.bubblewrap_process(command, table, owner=owner, rules=rules) as start:
        done = subprocess.run(  # noqa: S603 - a fixed command
            start.argv,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_S,
            check=False,
            pass_fds=start.descriptors,
        )
    if done.stdout.split() == [b"works", b"51"]:
        return None
    said = table.mask_host_paths(done.stderr.decode("utf-8", "replace")).strip()
    return said.splitlines()[-1][:200] if said else f"the trial ended with {done.returncode}"
