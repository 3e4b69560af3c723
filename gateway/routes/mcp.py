"""/api/mcp: the MCP servers of the extensions file, secrets masked, and how they stand."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(400, 404, 500))


class McpOAuthUpdate(BaseModel):
    """Where a server's tokens come from. Null keeps a stored secret, an empty text clears it."""

    model_config = ConfigDict(extra="allow")

    client_secret: str | None = None
    refresh_token: str | None = None
    extra_token_params: dict[str, str] = Field(default_factory=dict)


class McpServerUpdate(BaseModel):
    """An MCP server, in requests; `***` stands for the value that is stored."""

    enabled: bool = True
    type: str | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    oauth: McpOAuthUpdate | None = None
    description: str = ""


class McpServerView(BaseModel):
    """An MCP server, in answers: values of variables and headers are `***`, secrets of OAuth null."""

    enabled: bool
    type: str
    command: str | None
    args: list[str]
    env: dict[str, str]
    url: str | None
    headers: dict[str, str]
    oauth: dict[str, JsonValue] | None
    description: str


class McpConfigUpdate(BaseModel):
    """All MCP servers by name, as they shall be."""

    mcp_servers: dict[str, McpServerUpdate]


class McpConfigView(BaseModel):
    """All MCP servers by name."""

    mcp_servers: dict[str, McpServerView]


class McpServerToggle(BaseModel):
    """Whether a server shall be used."""

    enabled: bool


class McpServerStatusView(BaseModel):
    """How a server stands: `disabled`, `connecting`, `connected` or `failed`."""

    state: str
    tools: list[str]
    error: str | None
    attempts: int


class McpStatusView(BaseModel):
    """All MCP servers by name."""

    servers: dict[str, McpServerStatusView]


@router.get("/mcp/config")
async def get_config(agent_services: AgentServicesDep) -> McpConfigView:
    """List the MCP servers."""
    found = await agent_services.mcp.settings.list_servers()
    return McpConfigView.model_validate({"mcp_servers": found})


@router.put("/mcp/config")
async def replace_config(body: McpConfigUpdate, agent_services: AgentServicesDep) -> McpConfigView:
    """Put these servers in the place of all. Runs that start from now on have their tools."""
    given = {name: server.model_dump() for name, server in body.mcp_servers.items()}
    found = await agent_services.mcp.settings.replace(given)
    return McpConfigView.model_validate({"mcp_servers": found})


@router.patch("/mcp/config/{name:path}")
async def toggle_server(
    name: str, body: McpServerToggle, agent_services: AgentServicesDep
) -> McpServerView:
    """Switch one server on or off."""
    found = await agent_services.mcp.settings.set_enabled(name, enabled=body.enabled)
    return McpServerView.model_validate(found)


@router.get("/mcp/status")
async def get_status(agent_services: AgentServicesDep) -> McpStatusView:
    """Tell how every server stands, and what it offers."""
    found = {one.name: asdict(one) for one in await agent_services.mcp.statuses()}
    return McpStatusView.model_validate({"servers": found})
