"""The folders of this machine, fenced by paths. Commands run here only where the operator allowed it."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Mapping as StrMapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.errors import CommandsDisabled, SandboxError, SearchTimeout
from agent.paths import Mount, MountTable
from agent.sandbox import files, search
from agent.sandbox.host_shell import HostShell
from agent.sandbox.locks import PathLocks
from agent.sandbox.mounts import SharedMounts, ThreadMounts, no_shared_mounts
from agent.sandbox.protocol import FileListing, GrepQuery, Sandbox, SandboxProvider
from agent.sandbox.search_roots import SearchRoot, search_roots
from agent.thread_storage import ThreadStorage

SEARCH_DEADLINE_S = 10.0
"""How long one grep may take."""

T = TypeVar("T")


Shell = Callable[[str, float], Awaitable[str]]
"""Runs a command within some seconds, as `Sandbox.execute` says."""


class LocalSandbox(Sandbox):
    """The files of one thread, straight on this machine's disk, with whatever shell goes with them.

    Args:
        sandbox_id: `{kind}:{thread id}`.
        table: What is seen.
        locks: Those of all sandboxes over the same files.
        shell: Runs the commands; None = commands are off.
        search_deadline_s: How long one grep may take.
    """

    def __init__(
        self,
        *,
        sandbox_id: str,
        table: MountTable,
        locks: PathLocks,
        shell: Shell | None = None,
        search_deadline_s: float = SEARCH_DEADLINE_S,
    ) -> None:
        self._id = sandbox_id
        self._table = table
        self._locks = locks
        self._shell = shell
        self._search_deadline_s = search_deadline_s

    @property
    @override
    def id(self) -> str:
        return self._id

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> FileListing:
        return await _in_thread(partial(self._list_dir, path, max_depth))

    @override
    async def read_file(self, path: str) -> str:
        return await _in_thread(lambda: files.read_text(files.resolve_path(self._table, path)))

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        await _in_thread(partial(self._write_file, path, content, append=append))

    @override
    async def replace_text(self, path: str, old: str, new: str, *, everywhere: bool) -> None:
        await _in_thread(partial(self._replace_text, path, old, new, everywhere=everywhere))

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        return await _in_thread(
            partial(self._glob, path, pattern, include_dirs=include_dirs, max_results=max_results)
        )

    @override
    async def grep(self, path: str, query: GrepQuery) -> FileListing:
        asked, parts = await _in_thread(lambda: search_roots(self._table, path))
        try:
            with anyio.fail_after(self._search_deadline_s):
                answer = await self._search(parts, query)
        except TimeoutError as error:
            raise SearchTimeout from error
        if "error" in answer:
            raise SandboxError(str(answer["error"]))
        lines = tuple(
            f"{_joined(asked, name)}:{number}: {text}" for name, number, text in answer["lines"]
        )
        return FileListing(lines=lines, truncated=answer["truncated"])

    @override
    async def check_file(self, path: str) -> str:
        return await _in_thread(partial(self._check_file, path))

    @override
    async def execute(self, command: str, *, timeout_s: float) -> str:
        if self._shell is None:
            raise CommandsDisabled
        return await self._shell(command, timeout_s)

    def _list_dir(self, path: str, max_depth: int) -> FileListing:
        asked, parts = search_roots(self._table, path)
        found: dict[str, None] = {}  # in order, each once: parts share the folders above them
        for part in parts:
            names = part.prefix.split("/") if part.prefix else []
            shown = min(len(names), max_depth)
            found.update(dict.fromkeys("/".join(names[: at + 1]) + "/" for at in range(shown)))
            if max_depth > len(names):
                found.update(dict.fromkeys(_entries(part, max_depth - len(names))))
        lines = tuple(_joined(asked, name) for name in islice(found, files.MAX_LISTED))
        return FileListing(lines=lines, truncated=len(found) > files.MAX_LISTED)

    def _write_file(self, path: str, content: str, *, append: bool) -> None:
        way = files.resolve_path(self._table, path, write=True)
        with self._locks.locked(self._id, _key(way)):
            if append:
                files.append_text(way, content)
            else:
                files.write_text(way, content)

    def _replace_text(self, path: str, old: str, new: str, *, everywhere: bool) -> None:
        way = files.resolve_path(self._table, path, write=True)
        with self._locks.locked(self._id, _key(way)):
            text = files.read_text(way)
            if old == "":
                return
            if old not in text:
                raise SandboxError(f"the text to replace was not found in the file: {way.virtual}")
            files.write_text(way, text.replace(old, new, -1 if everywhere else 1))

    def _glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        asked, parts = search_roots(self._table, path)
        wanted = search.GlobQuery(pattern=pattern, include_dirs=include_dirs)
        found: list[str] = []
        for part in parts:
            with files.open_path(part.way) as folder, files.os_errors_explained(part.way.virtual):
                room = max_results - len(found)
                more, truncated = search.find_files(
                    folder, wanted, max_results=room, prefix=part.start
                )
            found += more
            if truncated:
                break
        else:
            truncated = False
        return FileListing(lines=tuple(_joined(asked, name) for name in found), truncated=truncated)

    def _check_file(self, path: str) -> str:
        way = files.resolve_path(self._table, path)
        files.require_file(way)
        return way.virtual

    async def _search(self, parts: Sequence[SearchRoot], query: GrepQuery) -> dict[str, Any]:
        """Run `search.py` as a child process; it is killed when the deadline cancels this."""
        prefixes = [part.prefix for part in parts]
        with ExitStack() as stack:

            def opened() -> list[int]:
                return [stack.enter_context(files.open_path(part.way)) for part in parts]

            # Entered on the stack inside the thread: descriptors are closed also if this is cancelled just then.
            descriptors = await _in_thread(opened)
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


class LocalSandboxProvider(SandboxProvider):
    """Gives each thread its folders, and all threads the configured mounts and what they share.

    Args:
        folders: The threads' folders.
        mounts: Further folders that the agent sees.
        shared: What all threads see besides.
        host_bash: Whether commands may run on this machine, unconfined.
        environment: Variables of those commands.
        fault: Why commands cannot be confined here, where that was tried.
    """

    def __init__(
        self,
        folders: ThreadStorage,
        *,
        mounts: Sequence[Mount] = (),
        shared: SharedMounts = no_shared_mounts,
        host_bash: bool = False,
        environment: StrMapping[str, str] | None = None,
        fault: str | None = None,
    ) -> None:
        self._tables = ThreadMounts(folders, mounts=mounts, shared=shared)
        self._host_bash = host_bash
        self._environment = dict(environment or {})
        self._fault = fault
        self._locks = PathLocks()

    @property
    @override
    def description(self) -> str:
        shell = "bash unconfined on this machine" if self._host_bash else "no shell"
        reason = f" ({self._fault})" if self._fault else ""
        return f"local: the thread's own folders, {shell}{reason}"

    @property
    @override
    def uses_thread_folders(self) -> bool:
        return True

    @property
    @override
    def can_execute(self) -> bool:
        return self._host_bash

    @override
    def sandbox_id(self, thread_id: str) -> str:
        self._tables.folders(thread_id)
        return f"local:{thread_id}"

    @override
    async def acquire(self, thread_id: str) -> Sandbox:
        table = await self._tables.mount_table(thread_id)
        shell = HostShell(
            folders=self._tables.folders(thread_id), table=table, environment=self._environment
        )
        return LocalSandbox(
            sandbox_id=self.sandbox_id(thread_id),
            table=table,
            locks=self._locks,
            shell=shell.run if self._host_bash else None,
        )

    @override
    async def release(self, sandbox_id: str) -> None:
        """Do nothing: folders need no rest."""

    @override
    async def aclose(self) -> None:
        """Do nothing: every command has ended with its call."""


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def _entries(part: SearchRoot, max_depth: int) -> list[str]:
    """List what is in a part, by paths below the path that was asked for."""
    with files.open_path(part.way) as folder, files.os_errors_explained(part.way.virtual):
        entries = islice(search.walk(folder, max_depth=max_depth), files.MAX_LISTED + 1)
        return [part.below(one.path) + ("/" if one.is_dir else "") for one in entries]


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if name else folder


def _key(way: files.ResolvedPath) -> str:
    return str(way.root.joinpath(*way.parts))
