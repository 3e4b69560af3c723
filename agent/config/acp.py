"""The `acp_agents` section: external agents that ours can call over ACP."""

from pydantic import Field

from agent.config.section import Section


class AcpAgentConfig(Section):
    """A program that speaks the Agent Client Protocol on its standard streams.

    It runs with Parley's rights, outside every sandbox.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Variables that it gets beside HOME, LOGNAME, PATH, SHELL, TERM and USER.
        description: What it is good for; our agent reads it.
        model: The model that it is asked to use; None = its own choice.
        auto_approve_permissions: Whether what it asks leave for is allowed, each time once; else it is refused.
        timeout_seconds: How long one call may take.
    """

    command: str = Field(min_length=1)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    description: str = ""
    model: str | None = None
    auto_approve_permissions: bool = False
    timeout_seconds: float = Field(default=1800.0, gt=0, le=86400, allow_inf_nan=False)
