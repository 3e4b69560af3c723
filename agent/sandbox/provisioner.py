"""Sandboxes from a provisioner, one per thread, used over HTTP. They run commands on a copy of the thread's files."""

import hashlib
import logging
from dataclasses import dataclass, replace
from functools import partial

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.config import SandboxConfig
from agent.errors import SandboxError, SandboxLost, SandboxUnusable
from agent.paths import WORKSPACE, MountTable
from agent.sandbox.aio_api import (
    NO_ADDRESS,
    AioSandboxClient,
    ProvisionerClient,
    open_http_client,
)
from agent.sandbox.disk import disk_limits
from agent.sandbox.docker_cli import installation_id
from agent.sandbox.file_sync import FileSync
from agent.sandbox.local import FolderSandboxProvider, Shell
from agent.sandbox.mounts import SharedMounts, configured_mounts, no_shared_mounts
from agent.sandbox.protocol import Sandbox
from agent.sandbox.result import OutputTail
from agent.sandbox.sandbox_use import SandboxUse
from agent.thread_storage import ThreadStorage

log = logging.getLogger(__name__)

CHECK_S = 60.0
"""Longest interval between checks for idle sandboxes, seconds."""

POLL_S, MAX_POLL_S = 0.25, 2.0
"""First and longest interval between checks whether a sandbox is ready, seconds."""

STOP_S = 10.0
"""Time limit for deleting all sandboxes at shutdown, seconds. The next start deletes the rest once they are idle."""


@dataclass(slots=True, kw_only=True)
class _ThreadSandbox(SandboxUse):
    """A thread's sandbox. Its lock is also held while files are exchanged.

    Attributes:
        client: None = there is none.
        sync: Exchanges files with it.
        has_unread: Whether a canceled command may have changed files that were not fetched.
    """

    client: AioSandboxClient | None = None
    sync: FileSync | None = None
    has_unread: bool = False

    def forget(self, client: AioSandboxClient) -> None:
        """Forget a lost sandbox, so that the next command starts another one."""
        if self.client is client:
            self.client = self.sync = None

    async def pull(self) -> str:
        """Fetch the files that commands have changed so far; see `FileSync.pull`. The caller holds the lock."""
        if self.sync is None:
            return ""
        self.has_unread = False
        problem = await self.sync.pull()
        self.has_unread = self.has_unread or bool(problem)
        return problem


class ProvisionerSandboxProvider(FolderSandboxProvider):
    """Provides each thread with its folders, and runs its commands in a sandbox that holds a copy of them.

    Args:
        config: The `sandbox` section.
        folders: Threads' folders.
        shared: Mounts that all threads share.

    Raises:
        SandboxUnusable: The provisioner's address is missing.
    """

    kind = "provisioner"

    def __init__(
        self,
        config: SandboxConfig,
        folders: ThreadStorage,
        shared: SharedMounts = no_shared_mounts,
    ) -> None:
        self._config = config.provisioner
        if not self._config.url:
            raise SandboxUnusable(NO_ADDRESS)
        super().__init__(
            folders,
            mounts=configured_mounts(config.mounts),
            shared=shared,
            disk=disk_limits(config),
        )
        self._http = open_http_client()
        self._provisioner = ProvisionerClient(self._http, self._config.url, self._config.api_key)
        self._environment = dict(config.environment)
        # Another node may be running a command, which may take up to its time limit.
        self._idle_s = max(self._config.idle_timeout_seconds, config.bash_command_timeout)
        self._home = installation_id(folders.folders("any").root.parent)[:8]
        self._sandboxes: dict[str, _ThreadSandbox] = {}
        self._silent: set[str] = set()

    @property
    @override
    def description(self) -> str:
        return f"provisioner: bash in a sandbox from {self._config.url}"

    @override
    async def acquire(self, thread_id: str) -> Sandbox:
        """Return the thread's sandbox. The file tools also see files that running commands have written so far."""
        used = self._sandboxes.get(thread_id)
        if used is not None and (used.commands or used.has_unread):
            async with used.lock:
                await used.pull()
        return await super().acquire(thread_id)

    @override
    def _shell(self, thread_id: str, table: MountTable) -> Shell:
        return partial(self._run, thread_id, table)

    @override
    async def run_maintenance(self) -> None:
        """Delete idle sandboxes, also of other processes, and sandboxes of deleted threads, until canceled."""
        idle_s = self._config.idle_timeout_seconds
        while True:
            try:
                await self._delete_forgotten()
                if idle_s > 0:
                    await self._delete_idle()
            except SandboxError as error:
                log.warning("idle sandboxes were not deleted: %s", error)
            await anyio.sleep(min(CHECK_S, idle_s / 2 or CHECK_S))

    @override
    async def aclose(self) -> None:
        """Delete all sandboxes of this process concurrently, within `STOP_S`."""
        sandboxes, self._sandboxes = self._sandboxes, {}
        with anyio.move_on_after(STOP_S, shield=True):
            async with anyio.create_task_group() as tasks:
                for thread_id, sandbox in sandboxes.items():
                    tasks.start_soon(partial(self._delete, thread_id, sandbox, in_use=True))
        with anyio.CancelScope(shield=True):
            await self._http.aclose()

    async def _run(
        self,
        thread_id: str,
        table: MountTable,
        command: str,
        timeout_s: float,
        output: OutputTail | None,
    ) -> str:
        sandbox = self._sandboxes.setdefault(thread_id, _ThreadSandbox())
        with sandbox.command():
            client, session_id = await self._open_session(thread_id, sandbox, table)
            try:
                result = await client.run_command(
                    command,
                    session_id=session_id,
                    folder=WORKSPACE,
                    environment=self._environment,
                    timeout_s=timeout_s,
                    output=output,
                )
                async with sandbox.lock:
                    problem = await sandbox.pull()
            except SandboxLost:
                sandbox.forget(client)
                raise
            except anyio.get_cancelled_exc_class():
                sandbox.has_unread = True
                raise
            note = " ".join(filter(None, (result.note, problem)))
            # Not on the event loop: outputs may be several megabytes.
            return await anyio.to_thread.run_sync(replace(result, note=note).text)

    async def _open_session(
        self, thread_id: str, sandbox: _ThreadSandbox, table: MountTable
    ) -> tuple[AioSandboxClient, str]:
        """Return a sandbox that has the thread's files, and a new session of its shell.

        Replaces a lost sandbox once, which is safe because no command has run yet.
        """
        mounts = [mount for mount in table.mounts if mount not in self._mounts]
        async with sandbox.lock:
            for is_last in (False, True):
                if sandbox.client is None or sandbox.sync is None:
                    client = await self._start(thread_id)
                    sync = FileSync(
                        client, self._folders.folders(thread_id).mounts(), self._meter(thread_id)
                    )
                    await sync.attach()
                    sandbox.client, sandbox.sync = client, sync
                client, sync = sandbox.client, sandbox.sync
                try:
                    await sync.push(mounts)
                    return client, await client.open_session()
                except SandboxLost:
                    sandbox.forget(client)
                    if is_last:
                        raise
        raise SandboxLost

    async def _start(self, thread_id: str) -> AioSandboxClient:
        """Start the thread's sandbox, or find the one that exists, and wait until it is ready.

        Raises:
            SandboxError: It cannot be started, or is not ready in time.
        """
        sandbox_id, limit_s = self._id(thread_id), self._config.start_timeout_seconds
        with anyio.move_on_after(limit_s):
            pause_s = POLL_S
            while True:
                try:
                    client = AioSandboxClient(
                        self._http, await self._provisioner.create(sandbox_id, thread_id)
                    )
                    if await client.is_ready():
                        log.info("sandbox %s is ready", sandbox_id)
                        return client
                    status = await self._provisioner.status(sandbox_id)
                except SandboxLost:  # the provisioner itself may still be starting
                    status = ""
                if status == "Failed":
                    await self._provisioner.delete(sandbox_id)
                    raise SandboxError("the sandbox cannot be started; see the provisioner's log")
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_POLL_S)
        with anyio.move_on_after(STOP_S, shield=True):
            await self._delete_by_id(sandbox_id)
        log.error("sandbox %s was not ready within %g s", sandbox_id, limit_s)
        raise SandboxError(f"the sandbox was not ready within {limit_s:g} s: try again later")

    async def _delete_forgotten(self) -> None:
        """Delete the sandboxes of deleted threads, because they still hold copies of the files."""
        for thread_id, sandbox in list(self._sandboxes.items()):
            root = anyio.Path(self._folders.folders(thread_id).root)
            if sandbox.is_idle and not await root.exists():
                await self._delete(thread_id, sandbox)

    async def _delete_idle(self) -> None:
        """Delete this installation's idle sandboxes. Each reports its last use by any process."""
        now, idle_s = anyio.current_time(), self._config.idle_timeout_seconds
        in_use = {
            self._id(thread_id)
            for thread_id, sandbox in self._sandboxes.items()
            if not sandbox.is_idle or sandbox.used_at + idle_s > now
        }
        threads = {self._id(thread_id): thread_id for thread_id in self._sandboxes}
        for sandbox_id, url in (await self._provisioner.list_addresses()).items():
            if not sandbox_id.startswith(self._home) or sandbox_id in in_use:
                continue
            if await self._is_used(sandbox_id, url):
                continue
            thread_id = threads.get(sandbox_id, "")
            if (sandbox := self._sandboxes.get(thread_id)) is None:
                await self._delete_by_id(sandbox_id)
            else:
                await self._delete(thread_id, sandbox)

    async def _is_used(self, sandbox_id: str, url: str) -> bool:
        """Return whether a sandbox was used recently. One that fails to report this twice in a row counts as lost."""
        try:
            age_s = await AioSandboxClient(self._http, url).idle_seconds()
        except SandboxError:  # another node may be starting it
            if sandbox_id in self._silent:
                return False
            self._silent.add(sandbox_id)
            return True
        self._silent.discard(sandbox_id)
        return age_s < self._idle_s

    async def _delete(
        self, thread_id: str, sandbox: _ThreadSandbox, *, in_use: bool = False
    ) -> None:
        """Delete a thread's sandbox. Without `in_use`, keep it if a command has started in the meantime."""
        async with sandbox.lock:
            if sandbox.commands and not in_use:
                return
            if sandbox.client is not None:
                root = anyio.Path(self._folders.folders(thread_id).root)
                if (sandbox.commands or sandbox.has_unread) and await root.exists():
                    await sandbox.pull()
                sandbox.forget(sandbox.client)
                await self._delete_by_id(self._id(thread_id))
        if sandbox.is_idle and self._sandboxes.get(thread_id) is sandbox:
            del self._sandboxes[thread_id]

    async def _delete_by_id(self, sandbox_id: str) -> None:
        self._silent.discard(sandbox_id)
        log.info("deleting sandbox %s", sandbox_id)
        try:
            await self._provisioner.delete(sandbox_id)
        except SandboxError as error:
            log.warning("sandbox %s was not deleted: %s", sandbox_id, error)

    def _id(self, thread_id: str) -> str:
        """Return the id of a thread's sandbox: this installation's prefix, then a hash."""
        digest = hashlib.sha256(f"{self._home}\n{thread_id}".encode()).hexdigest()
        return f"{self._home}{digest[:24]}"
