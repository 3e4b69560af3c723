"""The `sandbox` section."""

from typing import ClassVar

from pydantic import Field

from agent.config.section import Section


class MountConfig(Section):
    """A folder of this machine that the agent sees. Both paths absolute."""

    host_path: str = Field(min_length=1)
    container_path: str = Field(min_length=1)
    read_only: bool = True


class SandboxConfig(Section):
    """Where the agent's files are and its commands run.

    Attributes:
        use: `auto`, `local`, or `module:Class`.
        allow_host_bash: Whether `bash` may run without confinement on this machine.
        mounts: Further folders that the agent sees.
        environment: Variables of its commands.
        ls_output_max_chars: Longest answer of ls, glob and grep; 0 = no limit.
        read_file_output_max_chars: Longest answer of read_file; 0 = no limit.
        write_file_max_bytes: Largest content of one write_file without append; 0 = no limit.
    """

    passes_extra_keys: ClassVar[bool] = True

    use: str = "auto"
    allow_host_bash: bool = False
    mounts: list[MountConfig] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    ls_output_max_chars: int = Field(default=20_000, ge=0)
    read_file_output_max_chars: int = Field(default=50_000, ge=0)
    write_file_max_bytes: int = Field(default=80_000, ge=0)
