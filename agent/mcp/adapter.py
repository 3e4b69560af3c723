"""Wraps MCP tools as LangChain tools. Importing this imports langchain-mcp-adapters."""

import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio.to_thread
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.interceptors import (
    MCPToolCallRequest,
    MCPToolCallResult,
    ToolCallInterceptor,
)
from langchain_mcp_adapters.sessions import Connection
from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from mcp.types import CallToolResult, ImageContent, TextContent, Tool

from agent.errors import McpError, ThreadIdMissing
from agent.langgraph_internals import can_interrupt
from agent.locales import messages_for
from agent.mcp.calls import McpCaller, McpCallKey
from agent.mcp.errors import describe_error
from agent.mcp.images import save_images
from agent.mcp.results import result_text
from agent.mcp.schemas import tool_arguments
from agent.mcp.tool_names import SERVER_KEY, TOOL_KEY, tool_name
from agent.options import language_for_run, thread_id_for_run
from agent.redaction import redact_error
from agent.state import SHOWS_IMAGES, ViewedImage
from agent.thread_storage import ThreadStorage

log = logging.getLogger(__name__)

_UNUSED_CONNECTION: Connection = {"transport": "stdio", "command": "", "args": []}
"""The adapter requires one; `CallTool` opens the real connections."""

TOOL_PROGRESS = "tool_progress"
"""Type of the event with a running tool's progress text, in the run's stream (mode `custom`)."""

CallTool = Callable[[MCPToolCallRequest, McpCaller], Awaitable[CallToolResult]]
"""Calls a tool in a thread's session."""


def langchain_tool(
    server: str,
    tool: Tool,
    call: CallTool,
    interceptors: tuple[ToolCallInterceptor, ...],
    folders: ThreadStorage,
) -> BaseTool:
    """Wrap one tool. It returns text; failures are text that starts with `Error: `.

    Images are saved in the thread's outputs, and shown to models with vision.
    """
    arguments = tool_arguments(tool.inputSchema)

    async def send(
        request: MCPToolCallRequest,
        handler: Callable[[MCPToolCallRequest], Awaitable[MCPToolCallResult]],  # noqa: ARG001
    ) -> MCPToolCallResult:
        named = request.override(args=arguments.for_server(request.args))
        return await call(named, _caller(request))

    async def format_result(
        request: MCPToolCallRequest,
        handler: Callable[[MCPToolCallRequest], Awaitable[MCPToolCallResult]],
    ) -> MCPToolCallResult:
        try:
            result = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            result = _failed(server, error)
            # Known errors need no traceback.
            trace = None if isinstance(error, McpError) else error
            log.warning(
                "MCP server %s: tool %s failed: %s",
                server,
                tool.name,
                redact_error(str(error)),
                exc_info=trace,
            )
        if isinstance(result, CallToolResult):
            return await tool_answer(request.name, request.runtime, result, folders)
        return result

    converted = convert_mcp_tool_to_langchain_tool(
        None,
        tool.model_copy(update={"inputSchema": arguments.schema}),
        connection=_UNUSED_CONNECTION,
        tool_interceptors=[format_result, *interceptors, send],
        server_name=server,
    )
    metadata = {**(converted.metadata or {}), SERVER_KEY: server, TOOL_KEY: tool.name}
    return converted.model_copy(update={"name": tool_name(server, tool.name), "metadata": metadata})


async def tool_answer(
    name: str,
    runtime: Any,  # noqa: ANN401 - a ToolRuntime; None without one
    result: CallToolResult,
    folders: ThreadStorage,
) -> ToolMessage | Command[Any]:
    """Return a result in the form of a tool's answer. Saves its images for models with vision."""
    thread_id = runtime_thread(runtime)
    images: dict[str, ViewedImage] = {}
    if thread_id is not None and any(isinstance(one, ImageContent) for one in result.content):
        thread = folders.folders(thread_id)
        meter = folders.open_meter(thread_id)
        images = await anyio.to_thread.run_sync(save_images, result, thread, meter)
    message = ToolMessage(
        content=result_text(result, images),
        name=name,
        tool_call_id=getattr(runtime, "tool_call_id", None) or "missing_tool_call_id",
        status="error" if result.isError else "success",
        additional_kwargs={SHOWS_IMAGES: list(images)} if images else {},
    )
    if not images:
        return message
    return Command(update={"viewed_images": images, "messages": [message]})


def _failed(server: str, error: Exception) -> CallToolResult:
    reason = error.user_message if isinstance(error, McpError) else describe_error(error)
    text = f"MCP server '{server}' failed: {reason}"
    return CallToolResult(content=[TextContent(type="text", text=text)], isError=True)


def _caller(request: MCPToolCallRequest) -> McpCaller:
    runtime: Any = request.runtime
    config: Mapping[str, Any] = getattr(runtime, "config", None) or {}
    thread_id, call_id = runtime_thread(runtime), getattr(runtime, "tool_call_id", None) or ""
    step = str((config.get("configurable") or {}).get("checkpoint_ns") or "")

    run = contextvars.copy_context()

    def report(text: str) -> None:
        """Write an event; LangGraph's writer works only in the context of the run."""
        if runtime is not None:
            event = {"type": TOOL_PROGRESS, "tool_call_id": call_id, "text": redact_error(text)}
            run.run(runtime.stream_writer, event)

    return McpCaller(
        key=McpCallKey(thread_id, step, call_id),
        messages=messages_for(language_for_run(getattr(runtime, "context", None), config)),
        report=report,
        can_ask=thread_id is not None and can_interrupt(config),
    )


def runtime_thread(runtime: Any) -> str | None:  # noqa: ANN401 - a ToolRuntime; None without one
    """Return the thread of a tool's run, or None."""
    config: Mapping[str, Any] | None = getattr(runtime, "config", None)
    try:
        return thread_id_for_run(getattr(runtime, "context", None), config)
    except ThreadIdMissing:
        return None
