"""Sandbox in Docker: one container per thread runs its commands (`docker exec`); files are accessed on the host."""

import logging
from dataclasses import dataclass
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
    ContainerSpec,
    DockerCli,
    docker_problem,
    installation_id,
)
from agent.sandbox.local import FolderSandboxProvider, Shell
from agent.sandbox.mounts import SharedMounts, configured_mounts, no_shared_mounts
from agent.sandbox.permissions import open_permissions
from agent.sandbox.process import run_process
from agent.sandbox.result import CommandResult, OutputTail
from agent.sandbox.sandbox_use import SandboxUse
from agent.thread_storage import ThreadStorage

log = logging.getLogger(__name__)

CHECK_S = 60.0
"""Longest interval between checks for idle containers, seconds."""

STOP_S = 10.0
"""Time limit for removing all containers at shutdown, seconds. The next start removes the rest."""

ROUTED = ("bridge", "default", "host", "pasta", "podman", "private", "slirp4netns")
"""Networks of Docker and podman with external access."""

CONTAINER_LOST = "the sandbox container has stopped; files are kept, try again"


@dataclass(slots=True, kw_only=True)
class _Container(SandboxUse):
    """A thread's container. `spec`: the spec it was started from; None = no container."""

    spec: ContainerSpec | None = None


class DockerSandboxProvider(FolderSandboxProvider):
    """Provides each thread with its folders, and starts a container with these folders for its first command.

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
    @override
    def has_network(self) -> bool | None:
        if self._config.network in (INTERNAL, "none"):
            return False
        return True if self._config.network in ROUTED else None  # other networks may be internal

    @override
    def _shell(self, thread_id: str, table: MountTable) -> Shell:
        return partial(self._run, thread_id, table)

    @override
    async def run_maintenance(self) -> None:
        """Remove the containers of an earlier process, then remove idle ones until canceled."""
        await self._remove_leftovers()
        idle = self._config.idle_timeout_seconds
        while idle > 0:
            await anyio.sleep(min(CHECK_S, idle / 2))
            for thread_id, container in list(self._containers.items()):
                if container.spec and container.used_at + idle <= anyio.current_time():
                    await self._remove_if_idle(container)
                if not container.spec and container.is_idle:
                    del self._containers[thread_id]

    @override
    async def aclose(self) -> None:
        """Remove all containers concurrently, within `STOP_S`."""
        containers, self._containers = list(self._containers.values()), {}
        with anyio.move_on_after(STOP_S, shield=True):
            async with anyio.create_task_group() as tasks:
                for container in containers:
                    tasks.start_soon(self._remove, container)

    async def _run(
        self,
        thread_id: str,
        table: MountTable,
        command: str,
        timeout_s: float,
        output: OutputTail | None,
    ) -> str:
        container = self._containers.setdefault(thread_id, _Container())
        with container.command():
            # Open permissions before the start: the container's user must be able to enter the workspace.
            await anyio.to_thread.run_sync(open_permissions, self._folders.folders(thread_id))
            async with container.lock:
                spec = await self._ensure_started(thread_id, container, table)
            result = await self._execute(container, spec, command, timeout_s, output)
            # Not on the event loop: outputs may be several megabytes.
            return await anyio.to_thread.run_sync(lambda: table.mask_host_paths(result.text()))

    async def _execute(
        self,
        container: _Container,
        spec: ContainerSpec,
        command: str,
        timeout_s: float,
        output: OutputTail | None,
    ) -> CommandResult:
        """Run a command. If it does not end by itself, kill its processes in the container."""
        command_id = uuid4().hex
        process = self._docker.exec_process(spec.name, command_id, command)
        has_ended = False
        try:
            result = await run_process(process, timeout_s=timeout_s, output=output)
            has_ended = not result.note
        finally:
            if not has_ended:
                await self._kill(container, spec, command_id)
        if result.code != 0 and has_ended and not await self._is_running(spec):
            log.warning("sandbox container %s has stopped", spec.name)
            if container.spec is spec:
                await self._remove(container)
            raise SandboxError(CONTAINER_LOST)
        return result

    async def _kill(self, container: _Container, spec: ContainerSpec, command_id: str) -> None:
        """Kill the processes of one command. If that fails, remove the container."""
        with anyio.move_on_after(CALL_S, shield=True):
            done = await self._docker.try_run(*self._docker.kill_arguments(spec.name, command_id))
            if done.code != 0 and container.spec is spec:
                await self._remove(container)

    async def _ensure_started(
        self, thread_id: str, container: _Container, table: MountTable
    ) -> ContainerSpec:
        """Start the thread's container if it has none. Replace one with an outdated spec if nothing else runs in it.

        Returns:
            The spec that the container was started from.

        Raises:
            SandboxError: The container cannot be started.
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
        if container.spec is not None:
            if container.commands > 1 or spec.fits(container.spec):
                return container.spec
            await self._remove(container)
        container.spec = spec
        is_running = False
        try:
            await self._make_room(spec)
            await self._create_network(spec)
            await self._start(spec)
            is_running = True
        finally:
            if not is_running:  # failed or canceled: remove a half-started container
                with anyio.move_on_after(CALL_S, shield=True):
                    await self._remove(container)
        return spec

    async def _start(self, spec: ContainerSpec) -> None:
        # An earlier process may have left a container with this name.
        await self._docker.run(["rm", "--force", "--volumes", spec.name])
        done = await self._docker.run(
            spec.arguments(),
            stdin=spec.variables(),
            timeout_s=self._config.start_timeout_seconds,
        )
        if done.code != 0:
            # Docker's message contains host paths: only log it.
            log.error("cannot start container %s: %s", spec.name, done.err.strip()[-500:])
            raise SandboxError("the sandbox container cannot be started; see the log")
        if not await self._is_running(spec):
            raise SandboxError("the sandbox container stopped at once; its image needs bash")
        log.info("sandbox container %s is ready", spec.name)

    async def _is_running(self, spec: ContainerSpec) -> bool:
        template = "{{.State.Running}}"
        arguments = ["inspect", "--type", "container", "--format", template, spec.name]
        return (await self._docker.run(arguments)).out.strip() == "true"

    async def _make_room(self, spec: ContainerSpec) -> None:
        """Remove the least recently used idle containers, so that the new one stays within `replicas`."""
        others = [
            one
            for one in self._containers.values()
            if one.spec is not None and one.spec is not spec
        ]
        excess = max(len(others) + 1 - self._config.replicas, 0)
        idle = [one for one in others if one.is_idle]
        if excess > len(idle):
            log.warning("all %d sandbox containers are in use: starting one more", len(others))
        for container in sorted(idle, key=lambda one: one.used_at)[:excess]:
            await self._remove_if_idle(container)

    async def _create_network(self, spec: ContainerSpec) -> None:
        if self._config.network != INTERNAL or self._network_exists:
            return
        known = await self._docker.run(["network", "inspect", spec.network])
        if known.code != 0:
            # No external access, and no access between containers.
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
                await self._remove(container)

    async def _remove(self, container: _Container) -> None:
        spec, container.spec = container.spec, None
        if spec is not None:
            log.info("removing sandbox container %s", spec.name)
            await self._docker.try_run("rm", "--force", "--volumes", spec.name)

    async def _remove_leftovers(self) -> None:
        """Remove containers that an earlier process left. Use ids, because a new container may have the same name."""
        label = f"label={HOME_LABEL}={self._home}"
        done = await self._docker.try_run(
            "ps", "--all", "--filter", label, "--format", "{{.ID}}\t{{.Names}}"
        )
        for line in done.out.splitlines() if done.code == 0 else ():
            container_id, _, name = line.partition("\t")
            specs = [container.spec for container in self._containers.values()]
            if not any(spec is not None and spec.name == name for spec in specs):
                await self._docker.try_run("rm", "--force", "--volumes", container_id)
