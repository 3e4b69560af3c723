"""Docker command line: running it, the arguments that start a thread's container, and parsing `docker inspect`."""

import csv
import hashlib
import io
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from agent.config.docker import DockerConfig
from agent.errors import SandboxError
from agent.paths import Mount

logger = logging.getLogger(__name__)

CALL_S = 60.0
"""Default deadline of one docker call."""

KEY_VARIABLE = "SANDBOX_API_KEY"
"""Environment variable from which the image reads its API key."""

HOME_LABEL = "parley.home"
THREAD_LABEL = "parley.thread"
SPEC_LABEL = "parley.spec"

NONE = "none"
INTERNAL = "internal"


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
        logger.debug("%s %s", self._program, " ".join(arguments))
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

    async def try_run(self, *arguments: str) -> DockerOutput:
        """Run a command whose failure is logged and returned instead of raised."""
        try:
            output = await self.run(arguments)
        except SandboxError as error:
            output = DockerOutput(code=-1, out="", err=error.user_message)
        if output.code != 0:
            logger.warning("docker %s failed: %s", arguments[0], output.err.strip()[-300:])
        return output


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A thread's container.

    Attributes:
        config: The `sandbox.docker` section.
        home: The Parley installation it belongs to; see `installation_id`.
        thread_id: The thread.
        mounts: Host folders that it sees.
        environment: Variables of its commands.
    """

    config: DockerConfig
    home: str
    thread_id: str
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the container's name: the same in every process, unique per installation and thread."""
        digest = hashlib.sha256(f"{self.home}\0{self.thread_id}".encode()).hexdigest()
        return f"{self.config.container_prefix}-{digest[:32]}"

    @property
    def network(self) -> str:
        """Return the network that it joins."""
        if self.config.network == INTERNAL:
            return f"{self.config.container_prefix}-internal"
        return self.config.network

    @property
    def digest(self) -> str:
        """Return a hash of everything that requires a new container when it changes."""
        content = json.dumps([self._arguments(), sorted(self.environment.items())])
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    def arguments(self) -> list[str]:
        """Return the docker arguments. Variables are read from stdin, so process lists do not show them."""
        labels = {HOME_LABEL: self.home, THREAD_LABEL: self.thread_id, SPEC_LABEL: self.digest}
        options = [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
        *start, image = self._arguments()
        return [*start, *options, "--env-file", "/dev/stdin", image]

    def variables(self, api_key: str) -> bytes:
        """Return the content of the env file.

        Raises:
            SandboxError: A value contains a line break, which the format cannot hold.
        """
        values = {**self.environment, KEY_VARIABLE: api_key}
        if any("\n" in part or "\r" in part for pair in values.items() for part in pair):
            raise SandboxError("sandbox.environment: values must not contain line breaks")
        return "".join(f"{name}={value}\n" for name, value in values.items()).encode()

    def _arguments(self) -> list[str]:
        config = self.config
        # Internal networks have no way in. Docker picks the host port, so two starts cannot collide.
        is_published = config.network not in (NONE, INTERNAL)
        publish = ("--publish", f"{config.publish_address}::{config.port}") if is_published else ()
        seccomp = ("--security-opt", "seccomp=unconfined")
        return [
            *("run", "--detach", "--rm", "--name", self.name),
            *("--memory", f"{config.memory_mb}m", "--memory-swap", f"{config.memory_mb}m"),
            *("--cpus", f"{config.cpus:g}", "--pids-limit", str(config.pids_limit)),
            *("--cap-drop", "ALL"),
            *(part for name in config.cap_add for part in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *(seccomp if config.seccomp == "unconfined" else ()),
            *("--network", self.network, *publish),
            *(part for mount in self.mounts for part in ("--mount", self._mount(mount))),
            config.image,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container as `docker inspect` reports it.

    Attributes:
        running: Whether it runs.
        digest: Digest of the spec it was started from.
        api_key: Its API key; secret.
        published_port: Its port on this machine, if published.
        address: Its own address in its network, if it has one.
    """

    running: bool
    digest: str
    api_key: str
    published_port: int | None
    address: str | None


def installation_id(folder: Path) -> str:
    """Return a short id of a data folder, for labels."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def daemon_path(path: Path, path_map: Mapping[str, str]) -> str:
    """Return a path as the Docker daemon sees it; the longest mapped prefix wins.

    >>> daemon_path(Path("/data/threads/t"), {"/data": "/srv/parley", "/data/other": "/x"})
    '/srv/parley/threads/t'
    """
    for inside in sorted(path_map, key=len, reverse=True):
        if path.is_relative_to(inside):
            return str(Path(path_map[inside]) / path.relative_to(inside))
    return str(path)


def parse_inspect(text: str, port: int) -> ContainerState | None:
    """Parse the output of `docker inspect` for one container; None if it is malformed."""
    try:
        found: dict[str, Any] = json.loads(text)[0]
        config, network = found["Config"], found["NetworkSettings"]
        variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        bindings = (network.get("Ports") or {}).get(f"{port}/tcp") or ()
        networks = (network.get("Networks") or {}).values()
        return ContainerState(
            running=bool(found["State"]["Running"]),
            digest=(config.get("Labels") or {}).get(SPEC_LABEL, ""),
            api_key=variables.get(KEY_VARIABLE, ""),
            published_port=next((int(one["HostPort"]) for one in bindings), None),
            address=next((one["IPAddress"] for one in networks if one.get("IPAddress")), None),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
