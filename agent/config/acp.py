"""The `acp_agents` section: external agents that Parley's agent can call over ACP."""

from pydantic import Field

from agent.config.section import Section


class AcpAgentConfig(Section):
    """A program that speaks the Agent Client Protocol over stdio.

    It runs with Parley's permissions, outside any sandbox.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Environment variables besides HOME, LOGNAME, PATH, SHELL, TERM and USER.
        description: The tasks it is good at; shown to Parley's agent.
        model: The model to request from it; None = its default.
        auto_approve_permissions: Whether to allow its permission requests (once each). Otherwise they are rejected.
        timeout_seconds: Time limit of one call, seconds.
    """

    command: str = Field(min_length=1)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    description: str = ""
    model: str | None = None
    auto_approve_permissions: bool = False
    timeout_seconds: float = Field(default=1800.0, gt=0, le=86400, allow_inf_nan=False)
