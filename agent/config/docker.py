"""The `sandbox.docker` section."""

from typing import Literal

from pydantic import Field

from agent.config.section import Section


class DockerConfig(Section):
    """Containers, one per thread that runs commands.

    Attributes:
        command: The command-line program: docker, or a compatible one such as podman.
        image: An image with bash and sleep.
        container_prefix: Prefix of container names.
        replicas: Number of containers to keep; exceeded only while all of them are in use.
        idle_timeout_seconds: Idle time after which a container is removed, seconds; 0 = never.
        start_timeout_seconds: Time limit for starting a container, seconds.
        network: `none`; `internal` = a separate network without external access; or the name of a bridge network.
        path_map: Maps folders as Parley sees them to folders as the Docker daemon sees them.
        memory_mb: Memory limit of one container, MiB.
        cpus: CPU limit of one container.
        pids_limit: Maximum number of processes and threads in one container.
        cap_add: Capabilities that are not dropped.
        seccomp: `default`, or `unconfined`, which browsers need.
    """

    command: str = Field(default="docker", min_length=1)
    image: str = Field(
        default="ghcr.io/agent-infra/sandbox:latest", min_length=1, pattern=r"^[^-\s]\S*$"
    )
    container_prefix: str = Field(
        default="parley-sandbox", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,40}$"
    )
    replicas: int = Field(default=3, ge=1, le=1000)
    idle_timeout_seconds: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    start_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    network: str = Field(default="none", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    path_map: dict[str, str] = Field(default_factory=dict)
    memory_mb: int = Field(default=2048, ge=64)
    cpus: float = Field(default=2.0, gt=0, le=1024)
    pids_limit: int = Field(default=512, ge=16)
    cap_add: list[str] = Field(default_factory=list)
    seccomp: Literal["default", "unconfined"] = "default"
