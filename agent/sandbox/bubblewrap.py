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
from agent.folders import Folders, ThreadFolders
from agent.paths import Mapping as Folder
from agent.paths import PathTable
from agent.sandbox import jail
from agent.sandbox.command import Start, run
from agent.sandbox.guard import Guard
from agent.sandbox.jail import BWRAP, JailLimits, Rules
from agent.sandbox.local import LocalSandbox
from agent.sandbox.locks import PathLocks
from agent.sandbox.outcome import Outcome
from agent.sandbox.protocol import Sandbox, Sandboxes
from agent.sandbox.space import MAX_DEPTH, Usage, is_short, survey
from agent.sandbox.tables import Shared, Tables, nothing_shared

PROBE_S = 20.0
"""How long the trial at start may take; it takes some 20 ms, on a machine under load more."""

_KILLED = (137, 152)  # by SIGKILL, SIGXCPU

FULL = (
    "The conversation's files take all the space that they may, so this command could not write to files. "
    "Delete what is not needed."
)


class BubblewrapSandboxes(Sandboxes):
    """Gives each thread its folders and a shell that sees nothing else.

    Args:
        folders: The threads' folders.
        mounts: Further folders that the agent sees.
        shared: What all threads see besides.
        rules: What commands may use.
    """

    def __init__(
        self,
        folders: Folders,
        *,
        mounts: Sequence[Folder] = (),
        shared: Shared = nothing_shared,
        rules: Rules | None = None,
    ) -> None:
        self._tables = Tables(folders, mounts=mounts, shared=shared)
        self._rules = rules or Rules()
        self._locks = PathLocks()

    @property
    @override
    def label(self) -> str:
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
        table = await self._tables.of(thread_id)
        shell = ConfinedShell(
            folders=self._tables.folders(thread_id),
            table=table,
            owner=jail.owner_of(thread_id),
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
class ConfinedShell:
    """Runs commands over one thread's folders.

    Attributes:
        folders: The thread's folders.
        table: What is seen of this machine besides the system's folders.
        owner: The user that commands run as; None = in a user namespace.
        rules: What they may use.
    """

    folders: ThreadFolders
    table: PathTable
    owner: int | None
    rules: Rules

    async def run(self, command: str, timeout_s: float) -> str:
        """Run a command, as `Sandbox.execute` says.

        Raises:
            SandboxError: It cannot be started.
        """
        root = self.folders.root
        before = await anyio.to_thread.run_sync(self._survey)
        is_full = await anyio.to_thread.run_sync(self._is_full, before)
        guard = Guard(
            folder=root,
            before=before,
            space=self.rules.space,
            memory_mb=self.rules.limits.memory_mb,
        )
        with ExitStack() as stack:
            start = await anyio.to_thread.run_sync(
                lambda: stack.enter_context(self._start(command, is_full=is_full))
            )
            outcome = await run(start, timeout_s=timeout_s, watch=guard.watch)
        text = self._explained(outcome).text()
        after = await anyio.to_thread.run_sync(self._survey)
        if is_full or after.over(self.rules.space):
            text += f"\n{FULL if is_full else self._told(after)}"
        return self.table.mask(text)

    def _survey(self) -> Usage:
        try:
            return survey(self.folders.root, self.owner)
        except OSError as error:
            raise SandboxError("the conversation's folders cannot be prepared") from error

    def _is_full(self, usage: Usage) -> bool:
        return usage.over(self.rules.space) or is_short(self.folders.root, self.rules.space)

    def _explained(self, outcome: Outcome) -> Outcome:
        if outcome.code not in _KILLED or outcome.note:
            return outcome
        note = (
            "It was killed. One process may use "
            f"{self.rules.limits.cpu_s} s of processor time, all together "
            f"{self.rules.limits.memory_mb} MB of memory."
        )
        return replace(outcome, note=note)

    def _told(self, usage: Usage) -> str:
        if usage.is_deep:
            return f"Folders lie deeper in each other than {MAX_DEPTH} levels: delete them."
        if usage.entries > self.rules.space.entries:
            return (
                f"There are more than {self.rules.space.entries} files: delete what is not needed."
            )
        return (
            f"The conversation's files now take {usage.size // 2**20} MB, more than the "
            f"{self.rules.space.quota_mb} MB that they may: delete what is not needed."
        )

    def _start(self, command: str, *, is_full: bool) -> AbstractContextManager[Start]:
        rules = self.rules
        if is_full:  # it may delete, not write
            rules = replace(rules, limits=replace(rules.limits, file_mb=0))
        return jail.prepared(command, self.table, owner=self.owner, rules=rules)


def probe(program: str = BWRAP) -> str | None:
    """Run a command in a throw-away folder; return why that does not work here, or None. Blocking."""
    if shutil.which(program) is None:
        return "bubblewrap is not installed"
    try:
        with tempfile.TemporaryDirectory(prefix="parley-") as home:
            return _trial(Path(home), program)
    except (OSError, SandboxError, subprocess.SubprocessError) as error:
        return f"the trial failed: {type(error).__name__}"


def _trial(home: Path, program: str) -> str | None:
    folders = Folders(home).of("trial")
    folders.make()
    owner = jail.owner_of("trial")
    survey(folders.root, owner)
    table = PathTable(folders.mappings())
    command = "echo works > file && cat file && ulimit -u"
    rules = Rules(limits=JailLimits(processes=51), program=program)
    with jail.prepared(command, table, owner=owner, rules=rules) as start:
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
    said = table.mask(done.stderr.decode("utf-8", "replace")).strip()
    return said.splitlines()[-1][:200] if said else f"the trial ended with {done.returncode}"
