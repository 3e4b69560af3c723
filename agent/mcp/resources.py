"""Tools for the resources and prompts of MCP servers. Importing this imports the MCP SDK."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Prompt,
    ReadResourceResult,
    TextContent,
)
from pydantic import AnyUrl, BaseModel, Field, ValidationError

from agent.errors import McpCallFailed, McpError, McpServerUnusable
from agent.mcp.adapter import runtime_thread, tool_answer
from agent.mcp.connections import McpClient
from agent.mcp.images import SUFFIXES
from agent.mcp.server import McpServer
from agent.thread_storage import ThreadStorage

LIST_RESOURCES, READ_RESOURCE = "list_mcp_resources", "read_mcp_resource"
GET_PROMPT = "get_mcp_prompt"

MAX_RESOURCES = 200
"""Maximum number of resources and templates to list per server."""

MAX_PROMPTS = 50
"""Maximum number of prompts in the description of get_mcp_prompt."""

LINE_CHARS = 200

Servers = Callable[[], Mapping[str, McpServer]]


class ListResourcesArgs(BaseModel):
    """Arguments of list_mcp_resources."""

    server: str | None = Field(default=None, description="The server; all servers if omitted.")


class ReadResourceArgs(BaseModel):
    """Arguments of read_mcp_resource."""

    server: str = Field(description="The server.")
    uri: str = Field(description="The address, from list_mcp_resources or from a tool's result.")


class GetPromptArgs(BaseModel):
    """Arguments of get_mcp_prompt."""

    server: str = Field(description="The server.")
    name: str = Field(description="The prompt.")
    arguments: dict[str, str] = Field(default_factory=dict, description="The prompt's arguments.")


def shared_tools(servers: Servers, folders: ThreadStorage) -> list[BaseTool]:
    """Build the tools for the resources and prompts of the current servers.

    Args:
        servers: Returns the current servers by name.
        folders: Where images are saved.
    """
    present = servers().values()
    has_resources = any(one.has_resources for one in present)
    has_prompts = any(one.prompts for one in present)
    return [
        *(resource_tools(servers, folders) if has_resources else ()),
        *([prompt_tool(servers, folders)] if has_prompts else ()),
    ]


def resource_tools(servers: Servers, folders: ThreadStorage) -> list[BaseTool]:
    """Build the tools that list and read resources."""

    async def list_resources(runtime: ToolRuntime, server: str | None = None) -> Any:  # noqa: ANN401 - a message or a command
        async def listed() -> CallToolResult:
            chosen = [_server(servers(), server)] if server else list(servers().values())
            lines: list[str] = []
            for one in chosen:
                if one.has_resources:
                    lines += [f"{one.name}:", *await one.request(runtime_thread(runtime), _lines)]
            return _text("\n".join(lines) or "There are no resources.")

        return await _answered(LIST_RESOURCES, runtime, folders, listed)

    async def read_resource(server: str, uri: str, runtime: ToolRuntime) -> Any:  # noqa: ANN401 - a message or a command
        async def read() -> CallToolResult:
            try:
                address = AnyUrl(uri)
            except ValidationError as error:
                raise McpCallFailed("the address is not valid") from error
            found = await _server(servers(), server).request(
                runtime_thread(runtime), lambda client: client.read_resource(address)
            )
            return CallToolResult(content=_blocks(found))

        return await _answered(READ_RESOURCE, runtime, folders, read)

    return [
        StructuredTool.from_function(
            coroutine=list_resources,
            name=LIST_RESOURCES,
            description="List resources of MCP servers: documents and data that read_mcp_resource returns.",
            args_schema=ListResourcesArgs,
        ),
        StructuredTool.from_function(
            coroutine=read_resource,
            name=READ_RESOURCE,
            description="Read a resource of an MCP server, such as a [resource ...] in the result of one of its tools.",
            args_schema=ReadResourceArgs,
        ),
    ]


def prompt_tool(servers: Servers, folders: ThreadStorage) -> BaseTool:
    """Build the tool that loads a prompt. Its description lists the current prompts."""

    async def get_prompt(
        server: str, name: str, runtime: ToolRuntime, arguments: dict[str, str] | None = None
    ) -> Any:  # noqa: ANN401 - a message or a command
        async def loaded() -> CallToolResult:
            found = await _server(servers(), server).request(
                runtime_thread(runtime), lambda client: client.get_prompt(name, arguments or {})
            )
            blocks: list[ContentBlock] = []
            for message in found.messages:
                if message.role == "assistant":
                    blocks.append(TextContent(type="text", text="[as the assistant]"))
                blocks.append(message.content)
            return CallToolResult(content=blocks)

        return await _answered(GET_PROMPT, runtime, folders, loaded)

    listed = [
        _prompt_line(name, prompt) for name, one in servers().items() for prompt in one.prompts
    ]
    return StructuredTool.from_function(
        coroutine=get_prompt,
        name=GET_PROMPT,
        description=(
            "Load a prompt of an MCP server: instructions that people choose. If a message begins with "
            "/mcp__server__prompt, or asks for one of these prompts, load it with the arguments that follow, then do "
            "what it says. If somebody asks which prompts there are, list them in that form. Prompts:\n"
            + "\n".join(listed[:MAX_PROMPTS])
        ),
        args_schema=GetPromptArgs,
    )


async def _answered(
    name: str, runtime: ToolRuntime, folders: ThreadStorage, work: Callable[[], Any]
) -> Any:  # noqa: ANN401 - a message or a command
    """Send a request. Return its result or error in the form of a tool's answer."""
    try:
        result = await work()
    except McpError as error:
        result = _text(f"MCP server failed: {error.user_message}", is_error=True)
    return await tool_answer(name, runtime, result, folders)


def _server(servers: Mapping[str, McpServer], name: str) -> McpServer:
    found = servers.get(name)
    if found is None:
        raise McpServerUnusable(
            f"there is no server {name[:80]!r}; there are: {', '.join(servers)}"
        )
    return found


async def _lines(client: McpClient) -> list[str]:
    """Return a line for each resource and template. Reads only the first page of each list."""
    resources = (await client.list_resources()).resources
    templates = (await client.list_resource_templates()).resourceTemplates
    lines = [_line(str(one.uri), one.name, one.description) for one in resources]
    lines += [
        _line(one.uriTemplate, one.name, one.description, "(fill in the braces)")
        for one in templates
    ]
    more = len(lines) - MAX_RESOURCES
    return [*lines[:MAX_RESOURCES], *([f"and {more} more"] if more > 0 else [])]


def _line(*parts: str | None) -> str:
    return f"- {' '.join(' '.join(part.split()) for part in parts if part)}"[:LINE_CHARS]


def _prompt_line(server: str, prompt: Prompt) -> str:
    """Return a line with a prompt in the form in which people type it.

    >>> _prompt_line("hotel", Prompt(name="invite", description="Invite somebody."))
    '- /mcp__hotel__invite: Invite somebody.'
    """
    names = [f"<{one.name}>" if one.required else f"[{one.name}]" for one in prompt.arguments or ()]
    command = " ".join([f"/mcp__{server}__{prompt.name}", *names])
    description = " ".join((prompt.description or "").split())
    return f"- {command}{f': {description}' if description else ''}"[:LINE_CHARS]


def _blocks(found: ReadResourceResult) -> list[ContentBlock]:
    """Return the contents of a resource. Converts images to the form of a tool's images, so that models see them."""
    blocks: list[ContentBlock] = []
    for content in found.contents:
        mime = content.mimeType or ""
        if isinstance(content, BlobResourceContents) and mime in SUFFIXES:
            blocks.append(ImageContent(type="image", data=content.blob, mimeType=mime))
        else:
            blocks.append(EmbeddedResource(type="resource", resource=content))
    return blocks


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], isError=is_error)
