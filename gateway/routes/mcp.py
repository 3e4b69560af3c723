"""/api/mcp: MCP servers of the extensions file, with secrets masked, and their status."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, JsonValue

from agent.mcp.settings import McpServerUpdate
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses
from gateway.shared_files import SharedFilesRoute

router = APIRouter(route_class=SharedFilesRoute, responses=error_responses(400, 404, 500))


class McpServerView(BaseModel):
    """An MCP server. Values of variables and headers are `***`, and OAuth secrets are null."""

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
    """The new MCP servers, by name."""

    mcp_servers: dict[str, McpServerUpdate]


class McpConfigView(BaseModel):
    """The MCP servers, by name."""

    mcp_servers: dict[str, McpServerView]


class McpServerToggle(BaseModel):
    """Whether to enable the server."""

    enabled: bool


class McpServerStatusView(BaseModel):
    """Status of an MCP server; `state` is `disabled`, `connecting`, `connected` or `failed`."""

    state: str
    tools: list[str]
    error: str | None
    attempts: int


class McpStatusView(BaseModel):
    """The status of each MCP server, by name."""

    servers: dict[str, McpServerStatusView]


@router.get("/mcp/config")
async def get_config(agent_services: AgentServicesDep) -> McpConfigView:
    """List the MCP servers."""
    found = await agent_services.mcp.settings.list_servers()
    return McpConfigView.model_validate({"mcp_servers": found})


@router.put("/mcp/config")
async def replace_config(body: McpConfigUpdate, agent_services: AgentServicesDep) -> McpConfigView:
    """Replace all MCP servers. New runs use the new tools."""
    given = {name: server.model_dump() for name, server in body.mcp_servers.items()}
    found = await agent_services.mcp.settings.replace(given)
    return McpConfigView.model_validate({"mcp_servers": found})


@router.patch("/mcp/config/{name:path}")
async def toggle_server(
    name: str, body: McpServerToggle, agent_services: AgentServicesDep
) -> McpServerView:
    """Enable or disable an MCP server."""
    found = await agent_services.mcp.settings.set_enabled(name, enabled=body.enabled)
    return McpServerView.model_validate(found)


@router.get("/mcp/status")
async def get_status(agent_services: AgentServicesDep) -> McpStatusView:
    """Return the status and the tools of each MCP server."""
    found = {one.name: asdict(one) for one in await agent_services.mcp.statuses()}
    return McpStatusView.model_validate({"servers": found})
