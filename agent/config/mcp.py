"""The `mcp` section. MCP servers themselves are configured in the extensions file."""

from pydantic import Field

from agent.config.section import Section


class McpConfig(Section):
    """How MCP servers are reached, and what may be set over the API.

    Attributes:
        allowed_commands: Programs that a server written over the API may start; the file itself may name any.
        connect_timeout_seconds: How long a server may take to start and greet.
        discovery_timeout_seconds: How long it may take to list its tools.
        call_timeout_seconds: How long one call of a tool may take.
        retry_seconds: The first pause before a server that could not be loaded is tried again; it doubles, to 300 s.
        idle_seconds: After how long without a call the process of a stdio server ends.
        max_sessions: How many processes of stdio servers run at once; one for each server and thread.
        result_max_chars: Longest result of a tool, characters.
    """

    allowed_commands: list[str] = Field(default_factory=lambda: ["npx", "uvx"])
    connect_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    discovery_timeout_seconds: float = Field(default=30.0, gt=0, le=3600, allow_inf_nan=False)
    call_timeout_seconds: float = Field(default=120.0, gt=0, le=86400, allow_inf_nan=False)
    retry_seconds: float = Field(default=5.0, gt=0, le=300, allow_inf_nan=False)
    idle_seconds: float = Field(default=600.0, gt=0, le=86400, allow_inf_nan=False)
    max_sessions: int = Field(default=256, ge=1, le=4096)
    result_max_chars: int = Field(default=50_000, ge=1000)
