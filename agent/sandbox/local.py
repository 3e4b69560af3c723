"""Sandbox on this machine: the files of one thread in its mounts, with an optional shell."""

import json
import subprocess
import sys
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Mapping as StrMapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from re import Pattern
from typing import Any, ClassVar

import anyio
from anyio import to_thread
from typing_extensions import override

from agent.errors import CommandsDisabled, SandboxError, SearchTimeout
from agent.paths import Mount, MountTable
from agent.sandbox import files, search
from agent.sandbox.disk import DiskLimits, DiskMeter
from agent.sandbox.edits import TextEdit, apply_edits, edit_diff
from agent.sandbox.encodings import FileText
from agent.sandbox.host_shell import run_on_host
from agent.sandbox.locks import PathLocks
from agent.sandbox.mounts import SharedMounts, no_shared_mounts
from agent.sandbox.protocol import FileListing, GrepQuery, Sandbox, SandboxProvider
from agent.sandbox.result import OutputTail
from agent.sandbox.search_roots import SearchRoot, search_roots
from agent.thread_storage import ThreadStorage

SEARCH_DEADLINE_S = 10.0
"""Time limit of one grep."""

MAX_METERS = 256
"""Maximum number of threads with cached disk usage."""


Shell = Callable[[str, float, OutputTail | None], Awaitable[str]]
"""Runs a command. Takes the shell text, a deadline in seconds, and an output or None; see `Sandbox.execute`."""


class LocalSandbox(Sandbox):
    """The files of one thread on this machine's disk, and a shell.

    Args:
        sandbox_id: `{kind}:{thread id}`.
        table: The mounts that it sees.
        locks: Shared by all sandboxes over the same files.
        meter: Measures the thread's files.
        shell: Runs commands; None = commands are off.
        search_deadline_s: Time limit of one grep.
    """

    def __init__(
        self,
        *,
        sandbox_id: str,
        table: MountTable,
        locks: PathLocks,
        meter: DiskMeter,
        shell: Shell | None = None,
        search_deadline_s: float = SEARCH_DEADLINE_S,
    ) -> None:
        self._id = sandbox_id
        self._table = table
        self._locks = locks
        self._meter = meter
        self._shell = shell
        self._search_deadline_s = search_deadline_s

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> FileListing:
        return await to_thread.run_sync(partial(self._list_dir, path, max_depth))

    @override
    async def read_file(self, path: str) -> FileText:
        return await to_thread.run_sync(
            lambda: files.read_text(files.resolve_path(self._table, path))
        )

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        await to_thread.run_sync(partial(self._write_file, path, content, append=append))

    @override
    async def delete_oldest(self, folder: str, name: Pattern[str], *, max_bytes: int) -> None:
        def work() -> None:
            resolved = files.resolve_path(self._table, folder, write=True)
            files.delete_oldest(resolved, name, max_bytes=max_bytes)

        await to_thread.run_sync(work)

    @override
    async def read_bytes(self, path: str) -> bytes:
        return await to_thread.run_sync(
            lambda: files.read_bytes(files.resolve_path(self._table, path))
        )

    @override
    async def edit_file(self, path: str, edits: Sequence[TextEdit]) -> str:
        return await to_thread.run_sync(partial(self._edit_file, path, edits))

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        return await to_thread.run_sync(
            partial(self._glob, path, pattern, include_dirs=include_dirs, max_results=max_results)
        )

    @override
    async def grep(self, path: str, query: GrepQuery) -> FileListing:
        start, roots = await to_thread.run_sync(lambda: search_roots(self._table, path))
        try:
            with anyio.fail_after(self._search_deadline_s):
                answer = await self._search(roots, query)
        except TimeoutError as error:
            raise SearchTimeout from error
        if "error" in answer:
            raise SandboxError(str(answer["error"]))
        lines = tuple(
            f"{_joined(start, name)}:{number}: {text}" for name, number, text in answer["lines"]
        )
        return FileListing(lines=lines, truncated=answer["truncated"])

    @override
    async def check_file(self, path: str) -> str:
        return await to_thread.run_sync(partial(self._check_file, path))

    @override
    async def execute(
        self, command: str, *, timeout_s: float, output: OutputTail | None = None
    ) -> str:
        if self._shell is None:
            raise CommandsDisabled
        if output is not None:
            output.mask = self._table.mask_host_paths
        return await self._shell(command, timeout_s, output)

    def _list_dir(self, path: str, max_depth: int) -> FileListing:
        start, roots = search_roots(self._table, path)
        found: dict[str, None] = {}  # ordered and unique, because roots share parent folders
        for root in roots:
            names = root.prefix.split("/") if root.prefix else []
            shown = min(len(names), max_depth)
            found.update(dict.fromkeys("/".join(names[: at + 1]) + "/" for at in range(shown)))
            if max_depth > len(names):
                found.update(dict.fromkeys(_entries(root, max_depth - len(names))))
        lines = tuple(_joined(start, name) for name in islice(found, files.MAX_LISTED))
        return FileListing(lines=lines, truncated=len(found) > files.MAX_LISTED)

    def _write_file(self, path: str, content: str, *, append: bool) -> None:
        resolved = files.resolve_path(self._table, path, write=True)
        self._meter.require_space(len(content.encode("utf-8", "replace")))
        with self._locks.locked(self._id, resolved.host):
            if append:
                files.append_text(resolved, content)
            else:
                files.write_text(resolved, content)

    def _edit_file(self, path: str, edits: Sequence[TextEdit]) -> str:
        resolved = files.resolve_path(self._table, path, write=True)
        with self._locks.locked(self._id, resolved.host):
            before, encoding = files.read_for_change(resolved)
            after = apply_edits(before, edits, resolved.virtual)
            self._meter.require_space(len(after.encode("utf-8", "replace")))
            files.write_text(resolved, after, encoding)
        return edit_diff(before, after)

    def _glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        start, roots = search_roots(self._table, path)
        found: list[str] = []
        is_cut = False
        for root in roots:
            with files.open_path(root.path) as folder, files.os_errors_explained(root.path.virtual):
                more, truncated = search.find_files(
                    folder,
                    pattern,
                    include_dirs=include_dirs,
                    max_results=max_results - len(found),
                    prefix=root.path_prefix,
                )
            found += more
            is_cut = is_cut or truncated
            if len(found) >= max_results and truncated:
                break
        return FileListing(lines=tuple(_joined(start, name) for name in found), truncated=is_cut)

    def _check_file(self, path: str) -> str:
        resolved = files.resolve_path(self._table, path)
        files.require_file(resolved)
        return resolved.virtual

    async def _search(self, roots: Sequence[SearchRoot], query: GrepQuery) -> dict[str, Any]:
        """Run `search.py` as a child process, which is killed when the deadline cancels this call."""
        prefixes = [root.prefix for root in roots]
        with ExitStack() as stack:

            def open_roots() -> list[int]:
                return [stack.enter_context(files.open_path(root.path)) for root in roots]

            # Open the files inside the thread, so that they are closed even if this call is canceled.
            descriptors = await to_thread.run_sync(open_roots)
            done = await anyio.run_process(
                [sys.executable, "-I", "-S", search.__file__, *map(str, descriptors)],
                input=json.dumps({**asdict(query), "prefixes": prefixes}).encode(),
                stderr=subprocess.DEVNULL,
                check=False,
                env={},
                pass_fds=descriptors,
            )
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise SandboxError("the search failed; simplify the pattern") from error
        return answer


class FolderSandboxProvider(SandboxProvider):
    """Base class of providers with files on this machine: thread folders, configured and shared mounts.

    Args:
        folders: Threads' folders.
        mounts: Configured mounts.
        shared: Mounts that all threads share.
        disk: Limits of one thread's files.
    """

    kind: ClassVar[str]
    """Prefix of its sandbox ids."""

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Mount] = (),
        shared: SharedMounts = no_shared_mounts,
        disk: DiskLimits | None = None,
    ) -> None:
        self._folders = folders
        self._disk = disk or DiskLimits()
        self._meters: OrderedDict[str, DiskMeter] = OrderedDict()
        self._mounts = tuple(mounts)
        self._shared = shared
        self._locks = PathLocks()

    @property
    @override
    def can_execute(self) -> bool:
        return True

    @override
    def sandbox_id(self, thread_id: str) -> str:
        self._folders.folders(thread_id)  # raises if the id is invalid
        return f"{self.kind}:{thread_id}"

    @override
    async def acquire(self, thread_id: str) -> Sandbox:
        table = await to_thread.run_sync(partial(self._mount_table, thread_id))
        return LocalSandbox(
            sandbox_id=self.sandbox_id(thread_id),
            table=table,
            locks=self._locks,
            meter=self._meter(thread_id),
            shell=self._shell(thread_id, table),
        )

    @override
    async def release(self, sandbox_id: str) -> None:
        """Do nothing: background processes belong to the conversation, not to one call."""

    @override
    async def aclose(self) -> None:
        """Do nothing: `BackgroundCommands` stops background processes, and other commands end with their calls."""

    def _meter(self, thread_id: str) -> DiskMeter:
        """Return the thread's meter, which all writers of its files share."""
        meter = self._meters.pop(thread_id, None)
        if meter is None:
            meter = DiskMeter(self._folders.folders(thread_id).root, self._disk)
        self._meters[thread_id] = meter
        if len(self._meters) > MAX_METERS:
            self._meters.popitem(last=False)
        return meter

    def _mount_table(self, thread_id: str) -> MountTable:
        folders = self._folders.folders(thread_id)
        with files.os_errors_explained("the thread's folders"):
            folders.create()
        # Resolve it, because `resolve_path` compares with resolved paths.
        shared = [replace(one, host=one.host.resolve()) for one in self._shared()]
        return MountTable((*folders.mounts(), *self._mounts, *shared))

    @abstractmethod
    def _shell(self, thread_id: str, table: MountTable) -> Shell | None:
        """Return the shell that runs a thread's commands; None = commands are off."""


class LocalSandboxProvider(FolderSandboxProvider):
    """Provides each thread with its folders, and with an unconfined shell if the operator allows it.

    Args:
        folders: Threads' folders.
        mounts: Configured mounts.
        shared: Mounts that all threads share.
        disk: Limits of one thread's files.
        host_bash: Whether commands run on this machine, unconfined.
        environment: Variables of these commands.
        fault: Why bubblewrap does not work here, if it was tried.
    """

    kind = "local"

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Mount] = (),
        shared: SharedMounts = no_shared_mounts,
        disk: DiskLimits | None = None,
        host_bash: bool = False,
        environment: StrMapping[str, str] | None = None,
        fault: str | None = None,
    ) -> None:
        super().__init__(folders, mounts=mounts, shared=shared, disk=disk)
        self._host_bash = host_bash
        self._environment = dict(environment or {})
        self._fault = fault

    @property
    @override
    def description(self) -> str:
        shell = "bash unconfined on this machine" if self._host_bash else "no shell"
        reason = f" ({self._fault})" if self._fault else ""
        return f"local: the thread's own folders, {shell}{reason}"

    @property
    @override
    def can_execute(self) -> bool:
        return self._host_bash

    @property
    @override
    def has_network(self) -> bool:
        return True

    @override
    def _shell(self, thread_id: str, table: MountTable) -> Shell | None:
        if not self._host_bash:
            return None
        folders = self._folders.folders(thread_id)
        return partial(run_on_host, folders, table, self._environment)


def _entries(root: SearchRoot, max_depth: int) -> list[str]:
    """List a search root, as paths below the requested path."""
    with files.open_path(root.path) as folder, files.os_errors_explained(root.path.virtual):
        entries = islice(search.walk(folder, max_depth=max_depth), files.MAX_LISTED + 1)
        return [root.path_prefix + one.path + ("/" if one.is_dir else "") for one in entries]


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder
