"""/api/mcp: MCP servers of the extensions file, with secrets masked, and their status."""

import time
from dataclasses import asdict

from fastapi import APIRouter, HTTPException, Request
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from pydantic import BaseModel, Field, JsonValue, ValidationError

from agent.mcp.settings import McpServerUpdate
from agent.mcp.tool_names import SERVER_KEY
from gateway.dependencies import AgentServicesDep
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses
from gateway.shared_files import SharedFilesRoute

router = APIRouter(route_class=SharedFilesRoute, responses=error_responses(400, 404, 500))

MAX_RESULT_CHARS = 50_000
"""How much of a result a test call shows, characters."""


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


class McpToolCall(BaseModel):
    """The arguments of a tool."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class McpToolResult(BaseModel):
    """The result of a tool, as the agent would see it."""

    is_error: bool
    text: str
    seconds: float


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


@router.put("/mcp/config/{name:path}")
async def put_server(
    name: str, body: McpServerUpdate, agent_services: AgentServicesDep
) -> McpServerView:
    """Add or replace one MCP server. New runs use the new tools."""
    found = await agent_services.mcp.settings.put(name, body.model_dump())
    return McpServerView.model_validate(found)


@router.delete("/mcp/config/{name:path}", status_code=204)
async def remove_server(name: str, agent_services: AgentServicesDep) -> None:
    """Remove one MCP server with its stored secrets."""
    await agent_services.mcp.settings.remove(name)


@router.post("/mcp/tools/{tool}/call")
async def call_tool(
    tool: str, body: McpToolCall, request: Request, agent_services: AgentServicesDep
) -> McpToolResult:
    """Call a tool of an MCP server for real, outside of conversations: without guardrails, files and questions.

    A server that asks a person gets a refusal.
    """
    known = (await agent_services.mcp.current_tools()).tools
    found = next(
        (one for one in known if one.name == tool and SERVER_KEY in (one.metadata or {})), None
    )
    if found is None:
        raise HTTPException(404, "No connected MCP server has this tool.")
    began = time.perf_counter()
    call = {"type": "tool_call", "name": tool, "args": body.arguments, "id": "test"}
    try:
        message: ToolMessage = await found.ainvoke(call)
    except (ToolException, ValidationError) as error:
        message = ToolMessage(content=str(error), tool_call_id="test", status="error")
    request.scope[AUDIT_DETAIL] = f"tool {tool}: {message.status}"
    return McpToolResult(
        is_error=message.status == "error",
        text=message.text[:MAX_RESULT_CHARS],
        seconds=round(time.perf_counter() - began, 3),
    )


@router.get("/mcp/status")
async def get_status(agent_services: AgentServicesDep) -> McpStatusView:
    """Return the status and the tools of each MCP server."""
    found = {one.name: asdict(one) for one in await agent_services.mcp.statuses()}
    return McpStatusView.model_validate({"servers": found})
