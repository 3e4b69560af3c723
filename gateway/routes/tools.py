"""GET /api/tools: the tools of the lead agent in chats, their providers, and the tokens that they take in a prompt."""

from typing import Literal

from fastapi import APIRouter
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel

from agent.mcp.tool_names import SERVER_KEY
from agent.tool_names import WEB_TOOLS, is_built_in
from agent.tools.tool_search import schema_tokens
from gateway.dependencies import ServicesDep

router = APIRouter()

ToolSource = Literal["built-in", "web", "mcp", "custom"]
_OPTIONS: RunnableConfig = {
    "configurable": {"chat": {"type": "private"}, "subagent_enabled": True, "is_plan_mode": True}
}
"""Options with which the agent has all of its tools."""


class ToolView(BaseModel):
    """A tool.

    Attributes:
        source: The provider: Parley, an entry of `tools` (`web` for web tools, `custom` for others), or an MCP server.
        server: The MCP server; "" = none.
        group: The group of an entry of `tools`; "" = none. Agents can be limited to groups.
        deferred: Whether it is in a prompt only after the agent has loaded it with `tool_search`.
        tokens: Estimated tokens of its description in a prompt.
    """

    name: str
    description: str
    source: ToolSource
    server: str
    group: str
    deferred: bool
    tokens: int


class ToolList(BaseModel):
    """The tools, in the order of the prompt."""

    tools: list[ToolView]


@router.get("/tools")
async def list_tools(services: ServicesDep) -> ToolList:
    """List the tools that the lead agent has in a chat, with plans and subagents."""
    found = await services.agents.tools_for(_OPTIONS)
    revision = services.agents.revision
    pairs = zip(revision.config.tools, revision.tools, strict=True)
    groups = {tool.name: entry.group for entry, tool in pairs}
    return ToolList(
        tools=[
            _view(tool, groups.get(tool.name, ""), is_deferred=tool.name in found.deferred)
            for tool in found.tools
        ]
    )


def _view(tool: BaseTool, group: str, *, is_deferred: bool) -> ToolView:
    server = str((tool.metadata or {}).get(SERVER_KEY) or "")
    return ToolView(
        name=tool.name,
        description=tool.description,
        source=_source(tool.name, server),
        server=server,
        group=group,
        deferred=is_deferred,
        tokens=schema_tokens([tool]),
    )


def _source(name: str, server: str) -> ToolSource:
    if server:
        return "mcp"
    if is_built_in(name):
        return "built-in"
    return "web" if name in WEB_TOOLS else "custom"
