"""Commands in containers, one for each thread that runs any; files as on this machine, whose folders they see."""

import logging
import secrets
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
from typing_extensions import override

from agent.config import SandboxConfig
from agent.config.docker import DockerConfig
from agent.errors import SandboxError, SandboxUnusable
from agent.paths import MountTable
from agent.sandbox.docker_api import ContainerApi, ExecResult, ExecWay, ShellSessionLost, Way
from agent.sandbox.docker_cli import CALL_S, DockerCli, DockerOutput, DockerRunner, docker_problem
from agent.sandbox.docker_spec import (
    HOME_LABEL,
    INTERNAL,
    NONE,
    THREAD_LABEL,
    ContainerSpec,
    ContainerState,
    installation_id,
    parse_inspect,
)
from agent.sandbox.local import LocalSandbox
from agent.sandbox.locks import PathLocks
from agent.sandbox.mounts import SharedMounts, ThreadMounts, configured_mounts, no_shared_mounts
from agent.sandbox.permissions import open_permissions
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.sandbox.result import CommandResult
from agent.thread_storage import ThreadStorage

logger = logging.getLogger(__name__)

CHECK_S = 60.0
"""How often containers that rest too long are looked for."""

STOP_S = 10.0
"""How long the removal of all containers may take at the end; what is left is found at the next start."""

TIMED_OUT = 124
"""The exit code of a command that took too long, as timeout(1) has it."""

DEAD = "the sandbox's container has ended; files are kept, try again"


@dataclass(slots=True, kw_only=True)
class _Place:
    """One thread's container.

    Attributes:
        lock: Held while it is started, used or removed: commands run one after the other.
        name: Its name while there is one, else "".
        api: The way to it; None = it is there, but was not spoken to yet.
        digest: The spec that it was started for.
        session: The shell session that commands run in.
        busy: Whether a turn uses it.
        used_at: When it was last used, on the loop's clock.
    """

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    name: str = ""
    api: ContainerApi | None = None
    digest: str = ""
    session: str | None = None
    busy: bool = False
    used_at: float = 0.0


class DockerSandboxProvider(SandboxProvider):
    """Gives each thread its folders, and a container that sees them as soon as it runs a command.

    Args:
        config: The `sandbox` section.
        folders: The threads' folders.
        shared: What all threads see besides.
        runner: Runs Docker; None = the program that is configured.

    Raises:
        SandboxUnusable: The program is not installed.
    """

    def __init__(
        self,
        config: SandboxConfig,
        folders: ThreadStorage,
        shared: SharedMounts = no_shared_mounts,
        *,
        runner: DockerRunner | None = None,
    ) -> None:
        self._docker: DockerConfig = config.docker
        fault = docker_problem(self._docker.command) if runner is None else None
        if fault:
            raise SandboxUnusable(fault)
        self._runner = runner or DockerCli(self._docker.command)
        self._environment = dict(config.environment)
        self._tables = ThreadMounts(folders, mounts=configured_mounts(config.mounts), shared=shared)
        self._home = installation_id(folders.folders("any").root.parent)
        self._locks = PathLocks()
        self._places: dict[str, _Place] = {}
        self._network_made = False

    @property
    @override
    def description(self) -> str:
        return (
            f"docker: bash in a container of {self._docker.image}, network {self._docker.network}"
        )

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
        return f"docker:{thread_id}"

    @override
    async def acquire(self, thread_id: str) -> Sandbox:
        table = await self._tables.mount_table(thread_id)
        return LocalSandbox(
            sandbox_id=self.sandbox_id(thread_id),
            table=table,
            locks=self._locks,
            shell=partial(self._run, thread_id, table),
        )

    @override
    async def release(self, sandbox_id: str) -> None:
        place = self._places.get(sandbox_id.removeprefix("docker:"))
        if place is not None:
            place.busy = False

    @override
    async def run_maintenance(self) -> None:
        """Take over what a former process left, then remove what rests too long."""
        await self._adopt()
        idle = self._docker.idle_timeout_seconds
        while idle > 0:
            await anyio.sleep(min(CHECK_S, idle / 2))
            for thread_id, place in list(self._places.items()):
                rests = place.used_at + idle <= anyio.current_time()
                if place.name and rests:
                    await self._rest(place)
                if not (place.name or place.busy or place.lock.locked()):
                    del self._places[thread_id]

    @override
    async def aclose(self) -> None:
        """Remove all containers, at the same time and within `STOP_S`."""
        places, self._places = list(self._places.values()), {}
        with anyio.move_on_after(STOP_S, shield=True):
            async with anyio.create_task_group() as tasks:
                for place in places:
                    if place.name:
                        tasks.start_soon(self._remove, place)

    # --- commands ----------------------------------------------------------------------------------------------

    async def _run(self, thread_id: str, table: MountTable, command: str, timeout_s: float) -> str:
        place = self._places.setdefault(thread_id, _Place())
        place.busy = True
        async with place.lock:
            try:
                # Before it starts: its shell is only ready when it can enter the workspace.
                await anyio.to_thread.run_sync(open_permissions, self._tables.folders(thread_id))
                api = await self._ensure(thread_id, place, table)
                return table.mask_host_paths(
                    (await self._said(place, api, command, timeout_s)).text()
                )
            finally:
                place.used_at = anyio.current_time()

    async def _said(
        self, place: _Place, api: ContainerApi, command: str, timeout_s: float
    ) -> CommandResult:
        """Run a command. Whatever ends it early ends its container too: nothing that it started goes on."""
        try:
            said = await self._in_session(place, api, command, timeout_s)
        except TimeoutError:
            await self._remove(place)
            note = f"The command was stopped: it took longer than {timeout_s:g} s."
            return CommandResult(stdout="", code=TIMED_OUT, note=note)
        except SandboxError as error:
            logger.warning("a container failed: %s", error)
            await self._remove(place)
            raise SandboxError(DEAD) from error
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CALL_S, shield=True):
                await self._remove(place)
            raise
        place.session = said.session
        return said.outcome

    async def _in_session(
        self, place: _Place, api: ContainerApi, command: str, timeout_s: float
    ) -> ExecResult:
        try:
            return await api.execute(command, session=place.session, timeout_s=timeout_s)
        except ShellSessionLost:
            logger.info("a container has lost its shell session: a new one is opened")
            place.session = None
            return await api.execute(command, session=None, timeout_s=timeout_s)

    # --- containers --------------------------------------------------------------------------------------------

    async def _ensure(self, thread_id: str, place: _Place, table: MountTable) -> ContainerApi:
        """Return the way to the thread's container, which is started when there is none, or another one.

        Raises:
            SandboxError: It cannot be started.
        """
        spec = ContainerSpec(
            config=self._docker,
            home=self._home,
            thread_id=thread_id,
            mounts=tuple(sorted(table.mounts, key=lambda one: one.virtual)),
            environment=self._environment,
        )
        if place.api is not None and place.digest == spec.digest:
            return place.api
        place.name, place.api, place.session = spec.name, None, None
        try:
            place.api = await self._found(spec) or await self._started(spec)
        finally:
            if place.api is None:  # failed, or cancelled: nothing half started is left
                with anyio.move_on_after(CALL_S, shield=True):
                    await self._remove(place)
        place.digest = spec.digest
        return place.api

    async def _found(self, spec: ContainerSpec) -> ContainerApi | None:
        """Take over the container of this name, if it is the wanted one and works; remove it else."""
        seen = await self._seen(spec)
        if seen is None:
            return None
        api = self._api(spec, seen)
        if seen.running and seen.digest == spec.digest and seen.api_key and api is not None:
            try:
                await api.wait_ready(self._docker.start_timeout_seconds)
            except SandboxError:
                logger.info("the container %s does not answer and is replaced", spec.name)
            else:
                return api
        await self._docker_call("rm", "--force", "--volumes", spec.name)
        return None

    async def _started(self, spec: ContainerSpec) -> ContainerApi:
        await self._make_room(spec)
        await self._make_network(spec)
        key = secrets.token_urlsafe(32)
        ran = await self._runner.run(
            spec.arguments(),
            given=spec.variables(key),
            timeout_s=self._docker.start_timeout_seconds + CALL_S,
        )
        if ran.code != 0:
            # Docker's words name paths of this machine: they are for the log.
            logger.error(
                "the container %s cannot be started: %s", spec.name, ran.err.strip()[-500:]
            )
            raise SandboxError(
                "the sandbox's container cannot be started; the reason is in the log"
            )
        seen = await self._seen(spec)
        api = self._api(spec, seen) if seen is not None and seen.running else None
        if api is None:
            raise SandboxError("the sandbox's container ended at once, or cannot be reached")
        await api.wait_ready(self._docker.start_timeout_seconds)
        logger.info("the container %s is ready", spec.name)
        return api

    def _api(self, spec: ContainerSpec, seen: ContainerState) -> ContainerApi | None:
        port = self._docker.port
        if self._docker.network == NONE:
            way: Way = ExecWay(self._runner, spec.name)
            return ContainerApi(way, f"http://127.0.0.1:{port}", seen.api_key)
        if self._docker.network == INTERNAL:
            host, reached = seen.address, port
        else:
            host = self._docker.reach_host or self._docker.publish_address
            reached = seen.published_port or 0
        if not host or not reached:
            return None
        return ContainerApi(Way(), f"http://{host}:{reached}", seen.api_key)

    async def _seen(self, spec: ContainerSpec) -> ContainerState | None:
        ran = await self._runner.run(["inspect", "--type", "container", spec.name])
        return parse_inspect(ran.out, self._docker.port) if ran.code == 0 else None

    async def _make_room(self, spec: ContainerSpec) -> None:
        """Remove the containers that rest longest, so that with the new one there are not too many."""
        there = [place for place in self._places.values() if place.name and place.name != spec.name]
        over = len(there) + 1 - self._docker.replicas
        resting = sorted(
            (place for place in there if not place.busy and not place.lock.locked()),
            key=lambda place: place.used_at,
        )
        if over > len(resting):
            logger.warning("all %d sandbox containers are in use: one more is started", len(there))
        for place in resting[: max(over, 0)]:
            await self._rest(place)

    async def _make_network(self, spec: ContainerSpec) -> None:
        if self._docker.network != INTERNAL or self._network_made:
            return
        known = await self._runner.run(["network", "inspect", spec.network])
        if known.code != 0:
            # No way out, and none from one container to another.
            isolated = "com.docker.network.bridge.enable_icc=false"
            ran = await self._docker_call(
                "network", "create", "--internal", "--opt", isolated, spec.network
            )
            if ran.code != 0:
                raise SandboxError("the sandbox's network cannot be made; the reason is in the log")
        self._network_made = True

    async def _rest(self, place: _Place) -> None:
        """Remove a container, unless it is in use just now."""
        try:
            place.lock.acquire_nowait()
        except anyio.WouldBlock:
            return
        try:
            logger.info("the container %s rests and is removed", place.name)
            await self._remove(place)
        finally:
            place.lock.release()

    async def _remove(self, place: _Place) -> None:
        name, place.name, place.api, place.session = place.name, "", None, None
        if name:
            await self._docker_call("rm", "--force", "--volumes", name)

    async def _adopt(self) -> None:
        """Find what a former process left: what runs may be used again, and rests until then; the rest goes."""
        form = f'{{{{.Names}}}}\t{{{{.State}}}}\t{{{{.Label "{THREAD_LABEL}"}}}}'
        ran = await self._docker_call(
            "ps", "--all", "--filter", f"label={HOME_LABEL}={self._home}", "--format", form
        )
        for line in ran.out.splitlines() if ran.code == 0 else ():
            name, state, thread_id = (*line.split("\t"), "", "")[:3]
            if thread_id in self._places or any(p.name == name for p in self._places.values()):
                continue  # somebody is at it already, perhaps before it knows the name
            place = _Place(name=name, used_at=anyio.current_time())
            if state == "running" and thread_id:
                logger.info("the container %s of a former process is taken over", name)
                self._places[thread_id] = place
            else:
                await self._remove(place)

    async def _docker_call(self, *arguments: str) -> DockerOutput:
        """Call Docker where a failure is only worth a line in the log."""
        try:
            ran = await self._runner.run(arguments)
        except SandboxError as error:
            ran = DockerOutput(code=-1, out="", err=error.user_message)
        if ran.code != 0:
            logger.warning("docker %s: %s", arguments[0], ran.err.strip()[-300:])
        return ran
