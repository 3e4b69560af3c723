"""The `sandbox` section."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from agent.config.docker import DockerConfig
from agent.config.provisioner import ProvisionerConfig
from agent.config.section import Section

SANDBOX_NAMES = ("auto", "bubblewrap", "local", "docker", "provisioner")
"""Values of `sandbox.use` that are not class names."""

_DEERFLOW_MODULES = ("deerflow.", "src.")
"""Prefixes of class names in DeerFlow's configurations, in its current source tree and in its first one."""

_DEERFLOW_KEYS = {
    "image": ("docker", "image"),
    "container_prefix": ("docker", "container_prefix"),
    "replicas": ("docker", "replicas"),
    "provisioner_url": ("provisioner", "url"),
    "provisioner_api_key": ("provisioner", "api_key"),
}
"""Keys next to DeerFlow's `use`, and their places in Parley. `idle_timeout` belongs to both sections."""


class MountConfig(Section):
    """A folder of this machine that is mounted into the sandbox. Both paths are absolute."""

    host_path: str = Field(min_length=1)
    container_path: str = Field(min_length=1)
    read_only: bool = True


class SandboxConfig(Section):
    """The sandbox for the agent's files and commands.

    Attributes:
        use: `auto`, `bubblewrap`, `local`, `docker`, `provisioner`, or `module:Class`. DeerFlow's AioSandboxProvider
            means `provisioner` if `provisioner_url` is set and `docker` otherwise; its LocalSandboxProvider means
            `local`.
        allow_host_bash: Whether `bash` may run unconfined on this machine if `use` is `local`.
        mounts: Additional folders.
        environment: Environment variables of commands.
        ls_output_max_chars: Longer results of ls, glob and grep are saved to a file; 0 = no separate limit.
        read_file_output_max_chars: Maximum characters of one read_file; 0 = no limit.
        write_file_max_bytes: Largest content of one write_file without append; 0 = no limit.
        bubblewrap_path: The path of bubblewrap.
        bash_command_timeout: Time limit of one command, seconds.
        bash_output_max_chars: Longer results of bash are saved to a file; 0 = no separate limit.
        memory_mb: Memory limit of one command with all its processes, MiB.
        cpu_seconds: CPU time limit of one process of a command, seconds.
        max_processes: Maximum number of processes and threads of one command.
        max_file_mb: Largest file that a command may write, MiB.
        disk_quota_mb: Disk quota of one thread's files, MiB.
        docker: Container settings if `use` is `docker`.
        provisioner: The service that starts sandboxes if `use` is `provisioner`.
        min_free_disk_mb: Free disk space below which commands cannot write, MiB.
    """

    use: str = "auto"
    allow_host_bash: bool = False
    mounts: list[MountConfig] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    ls_output_max_chars: int = Field(default=20_000, ge=0)
    read_file_output_max_chars: int = Field(default=50_000, ge=0)
    write_file_max_bytes: int = Field(default=80_000, ge=0)
    bubblewrap_path: str = Field(default="/usr/bin/bwrap", min_length=1)
    bash_command_timeout: float = Field(default=600.0, gt=0, le=86_400)
    bash_output_max_chars: int = Field(default=20_000, ge=0)
    memory_mb: int = Field(default=1024, ge=64)
    cpu_seconds: int = Field(default=300, ge=1)
    max_processes: int = Field(default=128, ge=8)
    max_file_mb: int = Field(default=200, ge=1)
    disk_quota_mb: int = Field(default=2048, ge=1)
    min_free_disk_mb: int = Field(default=512, ge=0)
    docker: DockerConfig = Field(default_factory=DockerConfig)
    provisioner: ProvisionerConfig = Field(default_factory=ProvisionerConfig)

    @classmethod
    @override
    def passes_extra_keys(cls, data: Mapping[str, Any], /) -> bool:
        return ":" in str(data.get("use", ""))

    @model_validator(mode="before")
    @classmethod
    def _translate_deerflow(cls, data: object) -> object:
        return _translated(data) if isinstance(data, dict) else data

    @field_validator("use")
    @classmethod
    def _check_use(cls, use: str) -> str:
        if use not in SANDBOX_NAMES and ":" not in use:
            raise ValueError(
                "must be auto, bubblewrap, local, docker or provisioner, or module:Class of your own"
            )
        return use


def _translated(data: dict[str, Any]) -> dict[str, Any]:
    """Translate a section that names a DeerFlow class to Parley's name and keys. Other sections stay unchanged.

    >>> _translated({"use": "deerflow.community.aio_sandbox:AioSandboxProvider", "idle_timeout": 60})
    {'use': 'docker', 'docker': {'idle_timeout_seconds': 60}}
    """
    use = data.get("use")
    if not isinstance(use, str) or not use.startswith(_DEERFLOW_MODULES):
        return data
    name = use.partition(":")[2]
    if name == "LocalSandboxProvider":
        return {**data, "use": "local"}
    if name != "AioSandboxProvider":
        return data
    target = "provisioner" if data.get("provisioner_url") else "docker"
    places = {**_DEERFLOW_KEYS, "idle_timeout": (target, "idle_timeout_seconds")}
    translated = {key: value for key, value in data.items() if key not in places}
    translated["use"] = target
    for key, (section, name) in places.items():
        if data.get(key) is not None:
            translated[section] = {name: data[key], **(translated.get(section) or {})}
    return translated
