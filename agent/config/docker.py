"""The `sandbox.docker` section."""

from typing import Literal

from pydantic import Field

from agent.config.section import Section


class DockerConfig(Section):
    """Containers, one for each thread that runs commands.

    Attributes:
        command: The program that starts them: docker, or another with the same command line, like podman.
        image: An image that serves the all-in-one sandbox's API.
        port: Where it serves it, inside.
        container_prefix: How the containers' names begin.
        replicas: How many may be there at once; more only while all of them are in use.
        idle_timeout_seconds: After how long without a command one is removed; 0 = never.
        start_timeout_seconds: How long one may take until its shell answers.
        network: `none`; `internal`, a network of its own without a way out; or the name of a bridge network.
        publish_address: Where a container in a bridge network is published on this machine.
        reach_host: Under which name that is reached; None = `publish_address`.
        path_map: Folders as Parley sees them, and as the Docker daemon does, where these differ.
        memory_mb: Memory of one container; MiB.
        cpus: Processors of one container.
        pids_limit: Processes and threads of one container.
        cap_add: What the image's start-up needs of the capabilities, all of which are taken away.
        seccomp: `default`, or `unconfined`, which the image's browser needs.
    """

    command: str = Field(default="docker", min_length=1)
    image: str = Field(
        default="ghcr.io/agent-infra/sandbox:latest", min_length=1, pattern=r"^[^-\s]\S*$"
    )
    port: int = Field(default=8080, ge=1, le=65535)
    container_prefix: str = Field(
        default="parley-sandbox", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,40}$"
    )
    replicas: int = Field(default=3, ge=1, le=1000)
    idle_timeout_seconds: float = Field(default=600.0, ge=0, allow_inf_nan=False)
    start_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    network: str = Field(default="none", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    publish_address: str = Field(default="127.0.0.1", min_length=1)
    reach_host: str | None = None
    path_map: dict[str, str] = Field(default_factory=dict)
    memory_mb: int = Field(default=2048, ge=64)
    cpus: float = Field(default=2.0, gt=0, le=1024)
    pids_limit: int = Field(default=512, ge=16)
    cap_add: list[str] = Field(
        default_factory=lambda: ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
    )
    seccomp: Literal["default", "unconfined"] = "default"
