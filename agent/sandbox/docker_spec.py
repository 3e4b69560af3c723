"""What a thread's container is like: its name, its arguments, and how what Docker tells of it is read. Pure."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.config.docker import DockerConfig
from agent.errors import SandboxError
from agent.paths import Mount as Folder

KEY = "SANDBOX_API_KEY"
"""The variable by which the image is told its key."""

HOME_LABEL = "parley.home"
THREAD_LABEL = "parley.thread"
SPEC_LABEL = "parley.spec"

NONE = "none"
INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container to be.

    Attributes:
        config: The section.
        home: Which installation of Parley it belongs to; see `installation_id`.
        thread_id: Whose it is.
        mounts: What it sees of this machine.
        environment: Variables of its commands.
    """

    config: DockerConfig
    home: str
    thread_id: str
    mounts: tuple[Folder, ...]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return its name: the same from every process, never shared by two threads."""
        wide = hashlib.sha256(f"{self.home}\0{self.thread_id}".encode()).hexdigest()
        return f"{self.config.container_prefix}-{wide[:32]}"

    @property
    def network(self) -> str:
        """Return the network that it joins."""
        if self.config.network == INTERNAL:
            return f"{self.config.container_prefix}-internal"
        return self.config.network

    @property
    def digest(self) -> str:
        """Return what differs as soon as another container would be started."""
        known = json.dumps([self._arguments(), sorted(self.environment.items())])
        return hashlib.sha256(known.encode()).hexdigest()[:32]

    def arguments(self) -> list[str]:
        """Return the arguments of `docker`. The variables are read from standard input: no list shows them."""
        labels = {HOME_LABEL: self.home, THREAD_LABEL: self.thread_id, SPEC_LABEL: self.digest}
        marked = [part for name, value in labels.items() for part in ("--label", f"{name}={value}")]
        *start, image = self._arguments()
        return [*start, *marked, "--env-file", "/dev/stdin", image]

    def variables(self, key: str) -> bytes:
        """Return the variables as Docker reads them from a file.

        Raises:
            SandboxError: A value has a line break, which cannot be written there.
        """
        every = {**self.environment, KEY: key}
        if any("\n" in part or "\r" in part for pair in every.items() for part in pair):
            raise SandboxError("sandbox.environment: a value must not hold a line break")
        return "".join(f"{name}={value}\n" for name, value in every.items()).encode()

    def _arguments(self) -> list[str]:
        config = self.config
        return [
            *("run", "--detach", "--rm", "--name", self.name),
            *("--memory", f"{config.memory_mb}m", "--memory-swap", f"{config.memory_mb}m"),
            *("--cpus", f"{config.cpus:g}", "--pids-limit", str(config.pids_limit)),
            *("--cap-drop", "ALL"),
            *(part for name in config.cap_add for part in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *(("--security-opt", "seccomp=unconfined") if config.seccomp == "unconfined" else ()),
            *("--network", self.network),
            *self._published(),
            *(part for mount in self.mounts for part in ("--mount", self._mount(mount))),
            config.image,
        ]

    def _published(self) -> Sequence[str]:
        """Publish only where that works: not without a network, nor in one without a way in."""
        if self.config.network in (NONE, INTERNAL):
            return ()
        # No port of ours is named: Docker takes a free one, so that two starts cannot want the same.
        return ("--publish", f"{self.config.publish_address}::{self.config.port}")

    def _mount(self, folder: Folder) -> str:
        source = daemon_path(folder.host, self.config.path_map)
        fields = ["type=bind", f"source={source}", f"target={folder.virtual}"]
        line = io.StringIO()
        # Docker reads the value as a line of CSV: a path may hold a comma.
        csv.writer(line, lineterminator="").writerow(
            [*fields, "readonly"] if folder.read_only else fields
        )
        return line.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container as Docker tells of it.

    Attributes:
        running: Whether it runs.
        digest: The spec that it was started for.
        api_key: Its API key; secret.
        published_port: The port on this machine, where one is published.
        address: Its own address in its network, where it has one.
    """

    running: bool
    digest: str
    api_key: str
    published_port: int | None
    address: str | None


def installation_id(folder: Path) -> str:
    """Return a short name for an installation's data folder, for labels."""
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def daemon_path(path: Path, path_map: Mapping[str, str]) -> str:
    """Return a path as the Docker daemon sees it: the longest prefix that is mapped counts.

    >>> daemon_path(Path("/data/threads/t"), {"/data": "/srv/parley", "/data/other": "/x"})
    '/srv/parley/threads/t'
    """
    for inside in sorted(path_map, key=len, reverse=True):
        if path.is_relative_to(inside):
            return str(Path(path_map[inside]) / path.relative_to(inside))
    return str(path)


def parse_inspect(text: str, port: int) -> ContainerState | None:
    """Read what `docker inspect` prints of one container; None when it makes no sense."""
    try:
        found = json.loads(text)[0]
        config, network = found["Config"], found["NetworkSettings"]
        variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        return ContainerState(
            running=bool(found["State"]["Running"]),
            digest=(config.get("Labels") or {}).get(SPEC_LABEL, ""),
            api_key=variables.get(KEY, ""),
            published_port=_published(network, port),
            address=_address(network),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _published(network: Mapping[str, Any], port: int) -> int | None:
    bindings = (network.get("Ports") or {}).get(f"{port}/tcp") or ()
    return next((int(binding["HostPort"]) for binding in bindings), None)


def _address(network: Mapping[str, Any]) -> str | None:
    joined = (network.get("Networks") or {}).values()
    return next((one["IPAddress"] for one in joined if one.get("IPAddress")), None)
