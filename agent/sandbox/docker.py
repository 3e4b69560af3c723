"""Sandbox in Docker: one container per thread that runs commands; files are accessed on the host."""

import logging
import secrets
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.config import SandboxConfig
from agent.errors import SandboxError, SandboxUnusable
from agent.paths import MountTable
from agent.sandbox.docker_api import (
    ContainerApi,
    DockerExecTransport,
    ShellSessionLost,
    http_transport,
)
from agent.sandbox.docker_cli import (
    CALL_S,
    HOME_LABEL,
    INTERNAL,
    NONE,
    THREAD_LABEL,
    ContainerSpec,
    ContainerState,
    DockerCli,
    docker_problem,
    installation_id,
    parse_inspect,
)
from agent.sandbox.local import FolderSandboxProvider, Shell
from agent.sandbox.mounts import SharedMounts, configured_mounts, no_shared_mounts
from agent.sandbox.permissions import open_permissions
from agent.sandbox.process import TIMED_OUT
from agent.sandbox.result import CommandResult
from agent.thread_storage import ThreadStorage

logger = logging.getLogger(__name__)

CHECK_S = 60.0
"""Longest interval between checks for idle containers."""

STOP_S = 10.0
"""Time limit for removing all containers at shutdown; the next start finds the rest."""

CONTAINER_LOST = "the sandbox container has stopped; files are kept, try again"


@dataclass(slots=True, kw_only=True)
class _Container:
    """A thread's container.

    Attributes:
        lock: Held while it is started, used or removed, so commands of one thread run one after the other.
        name: Its name, or "" while there is none.
        api: Its client; None = a container of an earlier process that was not contacted yet.
        digest: Digest of the spec it was started from.
        session: The shell session in which commands run.
        in_use: Whether a turn uses it.
        used_at: Last use, on the event loop's clock.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    name: str = ""
    api: ContainerApi | None = None
    digest: str = ""
    session: str | None = None
    in_use: bool = False
    used_at: float = 0.0


class DockerSandboxProvider(FolderSandboxProvider):
    """Gives each thread its folders, and starts a container with these folders for its first command.

    Args:
        config: The `sandbox` section.
        folders: Threads' folders.
        shared: Mounts that all threads share.

    Raises:
        SandboxUnusable: The docker program is not installed.
    """

    kind = "docker"

    def __init__(
        self,
        config: SandboxConfig,
        folders: ThreadStorage,
        shared: SharedMounts = no_shared_mounts,
    ) -> None:
        if problem := docker_problem(config.docker.command):
            raise SandboxUnusable(problem)
        super().__init__(folders, mounts=configured_mounts(config.mounts), shared=shared)
        self._config = config.docker
        self._docker = DockerCli(self._config.command)
        self._environment = dict(config.environment)
        self._home = installation_id(folders.folders("any").root.parent)
        self._containers: dict[str, _Container] = {}
        self._network_exists = False

    @property
    @override
    def description(self) -> str:
        return (
            f"docker: bash in a container of {self._config.image}, network {self._config.network}"
        )

    @property
    def tracked_threads(self) -> int:
        """Number of threads that have a container or use one."""
        return len(self._containers)

    @override
    def _shell(self, thread_id: str, table: MountTable) -> Shell:
        return partial(self._run, thread_id, table)

    @override
    async def release(self, sandbox_id: str) -> None:
        container = self._containers.get(sandbox_id.removeprefix("docker:"))
        if container is not None:
            container.in_use = False

    @override
    async def run_maintenance(self) -> None:
        """Adopt containers of an earlier process, then remove idle ones until cancelled."""
        await self._adopt()
        idle = self._config.idle_timeout_seconds
        while idle > 0:
            await anyio.sleep(min(CHECK_S, idle / 2))
            for thread_id, container in list(self._containers.items()):
                if container.name and container.used_at + idle <= anyio.current_time():
                    await self._remove_if_unlocked(container)
                if not (container.name or container.in_use or container.lock.locked()):
                    del self._containers[thread_id]

    @override
    async def aclose(self) -> None:
        """Remove all containers concurrently, within `STOP_S`."""
        containers, self._containers = list(self._containers.values()), {}
        with anyio.move_on_after(STOP_S, shield=True):
            async with anyio.create_task_group() as tasks:
                for container in containers:
                    tasks.start_soon(self._remove, container)

    async def _run(self, thread_id: str, table: MountTable, command: str, timeout_s: float) -> str:
        """Run a command. If it does not end by itself, the container is removed: nothing keeps running."""
        container = self._containers.setdefault(thread_id, _Container())
        container.in_use = True
        async with container.lock:
            try:
                # Before the start: the container's shell is ready only if it can enter the workspace.
                await anyio.to_thread.run_sync(open_permissions, self._folders.folders(thread_id))
                api = await self._ensure_started(thread_id, container, table)
                result = await self._execute(container, api, command, timeout_s)
                return table.mask_host_paths(result.text())
            except anyio.get_cancelled_exc_class():
                await self._remove_shielded(container)
                raise
            finally:
                container.used_at = anyio.current_time()

    async def _execute(
        self, container: _Container, api: ContainerApi, command: str, timeout_s: float
    ) -> CommandResult:
        try:
            try:
                done = await api.execute(command, session=container.session, timeout_s=timeout_s)
            except ShellSessionLost:
                logger.info("sandbox container %s: opening a new shell session", container.name)
                done = await api.execute(command, session=None, timeout_s=timeout_s)
        except TimeoutError:
            await self._remove(container)
            note = f"The command was stopped: it took longer than {timeout_s:g} s."
            return CommandResult(stdout="", code=TIMED_OUT, note=note)
        except SandboxError as error:
            logger.warning("sandbox container %s failed: %s", container.name, error)
            await self._remove(container)
            raise SandboxError(CONTAINER_LOST) from error
        container.session = done.session
        return done.result

    async def _ensure_started(
        self, thread_id: str, container: _Container, table: MountTable
    ) -> ContainerApi:
        """Return the client of the thread's container; start it if there is none, or its spec has changed.

        Raises:
            SandboxError: It cannot be started.
        """
        spec = ContainerSpec(
            config=self._config,
            home=self._home,
            thread_id=thread_id,
            mounts=tuple(sorted(table.mounts, key=lambda mount: mount.virtual)),
            environment=self._environment,
        )
        if container.api is not None and container.digest == spec.digest:
            return container.api
        container.name, container.api, container.session = spec.name, None, None
        try:
            container.api = await self._reuse(spec) or await self._start(spec)
        finally:
            if container.api is None:  # failed or cancelled: leave nothing half started
                await self._remove_shielded(container)
        container.digest = spec.digest
        return container.api

    async def _reuse(self, spec: ContainerSpec) -> ContainerApi | None:
        """Return the client of a running container with this spec; remove any other of the same name."""
        state = await self._inspect(spec)
        if state is None:
            return None
        api = self._api(spec, state)
        if state.running and state.digest == spec.digest and state.api_key and api is not None:
            try:
                await api.wait_ready(self._config.start_timeout_seconds)
            except SandboxError:
                logger.info("sandbox container %s does not respond: replacing it", spec.name)
            else:
                return api
        await self._docker.try_run("rm", "--force", "--volumes", spec.name)
        return None

    async def _start(self, spec: ContainerSpec) -> ContainerApi:
        await self._make_room(spec)
        await self._create_network(spec)
        done = await self._docker.run(
            spec.arguments(),
            stdin=spec.variables(secrets.token_urlsafe(32)),
            timeout_s=self._config.start_timeout_seconds + CALL_S,
        )
        if done.code != 0:
            # Docker's message contains host paths: log only.
            logger.error("cannot start container %s: %s", spec.name, done.err.strip()[-500:])
            raise SandboxError("the sandbox container cannot be started; see the log")
        state = await self._inspect(spec)
        api = self._api(spec, state) if state is not None and state.running else None
        if api is None:
            raise SandboxError("the sandbox container stopped at once, or cannot be reached")
        await api.wait_ready(self._config.start_timeout_seconds)
        logger.info("sandbox container %s is ready", spec.name)
        return api

    def _api(self, spec: ContainerSpec, state: ContainerState) -> ContainerApi | None:
        config = self._config
        if config.network == NONE:
            transport = partial(DockerExecTransport, self._docker, spec.name)
            return ContainerApi(f"http://127.0.0.1:{config.port}", state.api_key, transport)
        host: str | None = config.reach_host or config.publish_address
        port: int | None = state.published_port
        if config.network == INTERNAL:
            host, port = state.address, config.port
        if not host or not port:
            return None
        return ContainerApi(f"http://{host}:{port}", state.api_key, http_transport)

    async def _inspect(self, spec: ContainerSpec) -> ContainerState | None:
        done = await self._docker.run(["inspect", "--type", "container", spec.name])
        return parse_inspect(done.out, self._config.port) if done.code == 0 else None

    async def _make_room(self, spec: ContainerSpec) -> None:
        """Remove the least recently used idle containers, so that the new one stays within `replicas`."""
        others = [one for one in self._containers.values() if one.name not in ("", spec.name)]
        excess = max(len(others) + 1 - self._config.replicas, 0)
        idle = [one for one in others if not one.in_use and not one.lock.locked()]
        if excess > len(idle):
            logger.warning("all %d sandbox containers are in use: starting one more", len(others))
        for container in sorted(idle, key=lambda one: one.used_at)[:excess]:
            await self._remove_if_unlocked(container)

    async def _create_network(self, spec: ContainerSpec) -> None:
        if self._config.network != INTERNAL or self._network_exists:
            return
        known = await self._docker.run(["network", "inspect", spec.network])
        if known.code != 0:
            # No way out, and none from one container to another.
            isolated = "com.docker.network.bridge.enable_icc=false"
            done = await self._docker.try_run(
                "network", "create", "--internal", "--opt", isolated, spec.network
            )
            if done.code != 0:
                raise SandboxError("the sandbox network cannot be created; see the log")
        self._network_exists = True

    async def _remove_if_unlocked(self, container: _Container) -> None:
        try:
            container.lock.acquire_nowait()
        except anyio.WouldBlock:
            return
        try:
            logger.info("removing idle sandbox container %s", container.name)
            await self._remove(container)
        finally:
            container.lock.release()

    async def _remove_shielded(self, container: _Container) -> None:
        with anyio.move_on_after(CALL_S, shield=True):
            await self._remove(container)

    async def _remove(self, container: _Container) -> None:
        name, container.name, container.api, container.session = container.name, "", None, None
        container.in_use = False
        if name:
            await self._docker.try_run("rm", "--force", "--volumes", name)

    async def _adopt(self) -> None:
        """Keep the running containers of an earlier process for reuse; remove the stopped ones."""
        form = f'{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label "{THREAD_LABEL}"}}}}'
        done = await self._docker.try_run(
            "ps", "--all", "--filter", f"label={HOME_LABEL}={self._home}", "--format", form
        )
        for line in done.out.splitlines() if done.code == 0 else ():
            name, state, thread_id = (*line.split("\t"), "", "")[:3]
            known = any(one.name == name for one in self._containers.values())
            if known or thread_id in self._containers:
                continue  # a command is using it, perhaps before the name is known
            container = _Container(name=name, used_at=anyio.current_time())
            if state == "running" and thread_id:
                logger.info("adopting sandbox container %s of an earlier process", name)
                self._containers[thread_id] = container
            else:
                await self._remove(container)
