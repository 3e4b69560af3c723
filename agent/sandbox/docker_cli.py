"""Runs the docker program: starts a thread's container, and runs commands in it."""

import csv
import hashlib
import io
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from agent.config.docker import DockerConfig
from agent.errors import SandboxError
from agent.paths import WORKSPACE, Mount
from agent.sandbox.process import ProcessSpec

log = logging.getLogger(__name__)

CALL_S = 60.0
"""Default time limit of one docker call, seconds."""

HOME_LABEL = "parley.home"

INTERNAL = "internal"

USER = "1000:1000"
"""User and group of all processes in the container."""

COMMAND_VARIABLE = "PARLEY_COMMAND"
"""Environment variable that marks the processes of one command."""

_WAIT = "while :; do sleep 3600 & wait; done"
"""The container's first process. It reaps orphaned processes of commands, so that none becomes a zombie."""

_COMMAND = 'umask 0; exec bash -c -- "$1"'
"""The umask is 0, because users inside and outside the container differ, and both must be able to change the files."""

_KILL = f"""\
for attempt in 1 2 3 4 5; do
  found=
  for file in /proc/[0-9]*/environ; do
    while IFS= read -r -d '' variable; do
      [ "$variable" = "{COMMAND_VARIABLE}=$1" ] || continue
      pid=${{file#/proc/}} found=1
      kill -KILL "${{pid%/environ}}"
    done < "$file"
  done 2> /dev/null
  [ "$found" ] || break
done"""
"""Kills all processes of a command. Repeats while new ones appear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOutput:
    """Exit code and output of a docker call."""

    code: int
    out: str
    err: str


def docker_problem(program: str) -> str | None:
    """Return why Docker cannot be used on this machine, or None. Blocking: searches PATH."""
    if shutil.which(program) is not None:
        return None
    return f"sandbox.use: docker needs the program {program}, which is not installed"


class DockerCli:
    """Runs docker commands.

    Args:
        program: `docker`, `podman` or a path.
    """

    def __init__(self, program: str) -> None:
        self._program = program

    async def run(
        self, arguments: Sequence[str], *, stdin: bytes = b"", timeout_s: float = CALL_S
    ) -> DockerOutput:
        """Run a command. Secrets go through `stdin`, so arguments may be logged.

        Raises:
            SandboxError: The program cannot be started, or took too long and was killed.
        """
        log.debug("%s %s", self._program, " ".join(arguments))
        try:
            with anyio.fail_after(timeout_s):
                done = await anyio.run_process(
                    [self._program, *arguments], input=stdin, check=False
                )
        except TimeoutError as error:
            raise SandboxError("Docker did not respond in time") from error
        except OSError as error:
            raise SandboxError("Docker cannot be started on this machine") from error
        return DockerOutput(
            code=done.returncode,
            out=done.stdout.decode("utf-8", "replace"),
            err=done.stderr.decode("utf-8", "replace"),
        )

    def exec_process(self, container: str, command_id: str, command: str) -> ProcessSpec:
        """Return the process that runs a shell command in a container, in the workspace and with empty stdin.

        Killing this process does not stop the command in the container; see `kill_arguments`.
        """
        variable = f"{COMMAND_VARIABLE}={command_id}"
        options = ("--user", USER, "--workdir", WORKSPACE, "--env", variable, container)
        argv = [self._program, "exec", *options, "bash", "-c", _COMMAND, "sandbox", command]
        return ProcessSpec(argv=argv, environment=None)

    def kill_arguments(self, container: str, command_id: str) -> tuple[str, ...]:
        """Return the arguments that kill everything a command started in a container."""
        return ("exec", "--user", USER, container, "bash", "-c", _KILL, "sandbox", command_id)

    async def try_run(self, *arguments: str) -> DockerOutput:
        """Run a command. Log and return a failure instead of raising an error."""
        try:
            output = await self.run(arguments)
        except SandboxError as error:
            output = DockerOutput(code=-1, out="", err=error.user_message)
        if output.code != 0:
            log.warning("docker %s failed: %s", arguments[0], output.err.strip()[-300:])
        return output


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A thread's container.

    Attributes:
        config: The `sandbox.docker` section.
        home: The Parley installation it belongs to; see `installation_id`.
        thread_id: The thread.
        mounts: Host folders that it sees.
        shared: Host folders that all threads' containers see.
        environment: Variables of its commands.
    """

    config: DockerConfig
    home: str
    thread_id: str
    mounts: tuple[Mount, ...]
    shared: tuple[Mount, ...] = ()
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the container's name. It is unique per installation and thread, and the same in every process."""
        digest = hashlib.sha256(f"{self.home}\0{self.thread_id}".encode()).hexdigest()
        return f"{self.config.container_prefix}-{digest[:32]}"

    @property
    def network(self) -> str:
        """Return the network that the container joins."""
        if self.config.network == INTERNAL:
            return f"{self.config.container_prefix}-internal"
        return self.config.network

    def fits(self, other: "ContainerSpec") -> bool:
        """Return whether a container started from another spec can be used. It may have additional shared mounts."""
        is_same = replace(other, shared=self.shared) == self
        return is_same and set(self.shared) <= set(other.shared)

    def arguments(self) -> list[str]:
        """Return the docker arguments. Variables are read from stdin, so process lists do not show them."""
        arguments = self._arguments((*self.mounts, *self.shared))
        label = ("--label", f"{HOME_LABEL}={self.home}")
        return [*arguments, *label, "--env-file", "/dev/stdin", self.config.image, "-c", _WAIT]

    def variables(self) -> bytes:
        """Return the content of the env file.

        Raises:
            SandboxError: A value contains a line break, which the format cannot hold.
        """
        values = {"HOME": WORKSPACE, **self.environment}
        if any("\n" in part or "\r" in part for pair in values.items() for part in pair):
            raise SandboxError("sandbox.environment: values must not contain line breaks")
        return "".join(f"{name}={value}\n" for name, value in values.items()).encode()

    def _arguments(self, mounts: Sequence[Mount]) -> list[str]:
        """Return the arguments that precede the labels and the image."""
        config = self.config
        seccomp = ("--security-opt", "seccomp=unconfined")
        return [
            *("run", "--detach", "--rm", "--name", self.name),
            *("--user", USER, "--entrypoint", "bash", "--stop-signal", "KILL"),
            *("--memory", f"{config.memory_mb}m", "--memory-swap", f"{config.memory_mb}m"),
            *("--cpus", f"{config.cpus:g}", "--pids-limit", str(config.pids_limit)),
            *("--cap-drop", "ALL"),
            *(part for name in config.cap_add for part in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *(seccomp if config.seccomp == "unconfined" else ()),
            *("--network", self.network),
            *(part for mount in mounts for part in ("--mount", self._mount(mount))),
        ]

    def _mount(self, mount: Mount) -> str:
        source = daemon_path(mount.host, self.config.path_map)
        fields = ["type=bind", f"source={source}", f"target={mount.virtual}"]
        line = io.StringIO()
        # Docker parses the value as CSV: a path may contain a comma.
        csv.writer(line, lineterminator="").writerow(
            [*fields, "readonly"] if mount.read_only else fields
        )
        return line.getvalue()


def installation_id(folder: Path) -> str:
    """Return a short id of a data folder, for labels."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def daemon_path(path: Path, path_map: Mapping[str, str]) -> str:
    """Return a path as the Docker daemon sees it. The longest mapped prefix wins.

    >>> daemon_path(Path("/data/threads/t"), {"/data": "/srv/parley", "/data/other": "/x"})
    '/srv/parley/threads/t'
    """
    for inside in sorted(path_map, key=len, reverse=True):
        if path.is_relative_to(inside):
            return str(Path(path_map[inside]) / path.relative_to(inside))
    return str(path)
