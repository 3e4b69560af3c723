"""The `mcp` section. MCP servers themselves are configured in the extensions file."""

from pydantic import Field

from agent.config.section import Section


class McpConfig(Section):
    """Limits for MCP servers, and for their configuration through the API.

    Attributes:
        allowed_commands: Programs that servers added through the API may run. Servers in the file may run any program.
        connect_timeout_seconds: Time limit for a server to start and initialize, seconds.
        discovery_timeout_seconds: Time limit for listing its tools, seconds.
        call_timeout_seconds: Time limit of one tool call, seconds.
        retry_seconds: First delay before a failed server is loaded again, seconds; doubles up to 300 s.
        idle_seconds: Idle time after which a session with a server, and the process of a stdio server, ends; seconds.
        max_sessions: Maximum number of open sessions, one per server and thread.
        sampling: Names and patterns of servers that may send requests to Parley's default model during their tool
            calls.
        result_max_chars: Longer tool results are saved to a file, characters.
    """

    allowed_commands: list[str] = Field(default_factory=lambda: ["npx", "uvx"])
    connect_timeout_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    discovery_timeout_seconds: float = Field(default=30.0, gt=0, le=3600, allow_inf_nan=False)
    call_timeout_seconds: float = Field(default=120.0, gt=0, le=86400, allow_inf_nan=False)
    retry_seconds: float = Field(default=5.0, gt=0, le=300, allow_inf_nan=False)
    idle_seconds: float = Field(default=600.0, gt=0, le=86400, allow_inf_nan=False)
    max_sessions: int = Field(default=256, ge=1, le=4096)
    sampling: list[str] = Field(default_factory=list)
    result_max_chars: int = Field(default=50_000, ge=1000)
