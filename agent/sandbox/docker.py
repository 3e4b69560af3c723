"""Sandbox in Docker: one container per thread runs its commands (`docker exec`); files are accessed on the host."""

import logging
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.config import SandboxConfig
from agent.errors import SandboxError, SandboxUnusable
from agent.paths import MountTable
from agent.sandbox.disk import disk_limits
from agent.sandbox.docker_cli import (
    CALL_S,
    HOME_LABEL,
    INTERNAL,
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
from agent.sandbox.process import run_process
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
        lock: Held while it is started or removed; commands run concurrently.
        name: Its name, or "" while there is none.
        state: What it was started from; None = a container of an earlier process that was not inspected yet.
        commands: Number of commands that use it or wait for it.
        used_at: Last use, on the event loop's clock.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    name: str = ""
    state: ContainerState | None = None
    commands: int = 0
    used_at: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.commands and not self.lock.locked()


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
        super().__init__(
            folders,
            mounts=configured_mounts(config.mounts),
            shared=shared,
            disk=disk_limits(config),
        )
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
    async def run_maintenance(self) -> None:
        """Adopt containers of an earlier process, then remove idle ones until cancelled."""
        await self._adopt()
        idle = self._config.idle_timeout_seconds
        while idle > 0:
            await anyio.sleep(min(CHECK_S, idle / 2))
            for thread_id, container in list(self._containers.items()):
                if container.name and container.used_at + idle <= anyio.current_time():
                    await self._remove_if_idle(container)
                if not container.name and container.is_idle:
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
        container = self._containers.setdefault(thread_id, _Container())
        container.commands += 1
        try:
            # Before the start: the container's user must be able to enter the workspace.
            await anyio.to_thread.run_sync(open_permissions, self._folders.folders(thread_id))
            async with container.lock:
                await self._ensure_started(thread_id, container, table)
            result = await self._execute(container, command, timeout_s)
            # Not on the event loop: outputs may have megabytes.
            return await anyio.to_thread.run_sync(lambda: table.mask_host_paths(result.text()))
        finally:
            container.commands -= 1
            container.used_at = anyio.current_time()

    async def _execute(
        self, container: _Container, command: str, timeout_s: float
    ) -> CommandResult:
        """Run a command. If it does not end by itself, its processes in the container are killed."""
        name, command_id = container.name, uuid4().hex
        process = self._docker.exec_process(name, command_id, command)
        has_ended = False
        try:
            result = await run_process(process, timeout_s=timeout_s)
            has_ended = not result.note
        finally:
            if not has_ended:
                await self._kill(container, name, command_id)
        if result.code != 0 and has_ended and not await self._is_running(name):
            logger.warning("sandbox container %s has stopped", name)
            if container.name == name:
                await self._remove(container)
            raise SandboxError(CONTAINER_LOST)
        return result

    async def _kill(self, container: _Container, name: str, command_id: str) -> None:
        """Kill the processes of one command; if that fails, remove the container."""
        with anyio.move_on_after(CALL_S, shield=True):
            done = await self._docker.try_run(*self._docker.kill_arguments(name, command_id))
            if done.code != 0 and container.name == name:
                await self._remove(container)

    async def _ensure_started(
        self, thread_id: str, container: _Container, table: MountTable
    ) -> None:
        """Start the thread's container if there is none, or if it differs from its spec and runs nothing else.

        Raises:
            SandboxError: It cannot be started.
        """
        shared = {mount.virtual for mount in self._shared()}
        mounts = sorted(table.mounts, key=lambda mount: mount.virtual)
        spec = ContainerSpec(
            config=self._config,
            home=self._home,
            thread_id=thread_id,
            mounts=tuple(mount for mount in mounts if mount.virtual not in shared),
            shared=tuple(mount for mount in mounts if mount.virtual in shared),
            environment=self._environment,
        )
        if container.state is not None and (container.commands > 1 or spec.fits(container.state)):
            return
        container.name, container.state = spec.name, None
        try:
            state = await self._inspect(spec.name)
            if state is not None and not (state.running and spec.fits(state)):
                await self._docker.try_run("rm", "--force", "--volumes", spec.name)
                state = None
            container.state = state or await self._start(spec)
        finally:
            if container.state is None:  # failed or cancelled: leave nothing half started
                with anyio.move_on_after(CALL_S, shield=True):
                    await self._remove(container)

    async def _start(self, spec: ContainerSpec) -> ContainerState:
        await self._make_room(spec)
        await self._create_network(spec)
        done = await self._docker.run(
            spec.arguments(),
            stdin=spec.variables(),
            timeout_s=self._config.start_timeout_seconds,
        )
        if done.code != 0:
            # Docker's message contains host paths: log only.
            logger.error("cannot start container %s: %s", spec.name, done.err.strip()[-500:])
            raise SandboxError("the sandbox container cannot be started; see the log")
        state = await self._inspect(spec.name)
        if state is None or not state.running:
            raise SandboxError("the sandbox container stopped at once; its image needs bash")
        logger.info("sandbox container %s is ready", spec.name)
        return state

    async def _inspect(self, name: str) -> ContainerState | None:
        done = await self._docker.run(["inspect", "--type", "container", name])
        return parse_inspect(done.out) if done.code == 0 else None

    async def _is_running(self, name: str) -> bool:
        state = await self._inspect(name)
        return state is not None and state.running

    async def _make_room(self, spec: ContainerSpec) -> None:
        """Remove the least recently used idle containers, so that the new one stays within `replicas`."""
        others = [one for one in self._containers.values() if one.name not in ("", spec.name)]
        excess = max(len(others) + 1 - self._config.replicas, 0)
        idle = [one for one in others if one.is_idle]
        if excess > len(idle):
            logger.warning("all %d sandbox containers are in use: starting one more", len(others))
        for container in sorted(idle, key=lambda one: one.used_at)[:excess]:
            await self._remove_if_idle(container)

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

    async def _remove_if_idle(self, container: _Container) -> None:
        if container.is_idle:
            async with container.lock:
                logger.info("removing idle sandbox container %s", container.name)
                await self._remove(container)

    async def _remove(self, container: _Container) -> None:
        name, container.name, container.state = container.name, "", None
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
