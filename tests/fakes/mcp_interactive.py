"""An MCP server that sends requests and notifications: questions, progress, sampling, new tools, resources, prompts.

`mcp_interactive.py stdio`, or `mcp_interactive.py http`, which prints its port. It writes each tool call and each
cancellation that it gets into the file in the variable LOG.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import McpError
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from mcp.types import ListToolsRequest, ResourceLink, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 60
INSTRUCTIONS = "Book rooms with `book`. Never book <on Sundays>."
REPORT = "The report: 41 rooms."

Ctx = Context[Any, Any, Any]


class Booking(BaseModel):
    """The form of a question."""

    room: str = Field(description="Which room?", json_schema_extra={"enum": ["blue", "red"]})
    guests: int = Field(description="How many guests?")
    catering: bool | None = Field(default=None, description="With catering?")


def log(text: str) -> None:
    """Append a line to the log."""
    if file := os.environ.get("LOG"):
        with Path(file).open("a") as out:
            out.write(f"{text}\n")


def build() -> FastMCP[Any]:
    """Return the server."""
    server: FastMCP[Any] = FastMCP("interactive", instructions=INSTRUCTIONS, log_level="ERROR")
    for tool in (book, copy, ask_model):
        server.tool()(tool)
    server.tool(structured_output=False)(link)

    @server.tool()
    async def unlock(context: Ctx) -> str:
        """Add a tool."""
        server.add_tool(added, name="added", description="A tool that was added.")
        await context.session.send_tool_list_changed()
        return "unlocked"

    add_resources(server)
    low = server._mcp_server
    original = low.create_initialization_options
    options = NotificationOptions(tools_changed=True)
    # FastMCP cannot announce that its tools change.
    low.create_initialization_options = lambda *_: original(options)  # type: ignore[method-assign]
    return server


async def book(context: Ctx, day: str) -> str:
    """Book a room for a day."""
    log(f"book {day}")
    answer = await context.elicit(f"Which room on {day}?", Booking)
    if answer.action != "accept":
        return f"not booked: {answer.action}"
    return f"booked {answer.data.room} for {answer.data.guests}, catering {answer.data.catering}"


async def copy(context: Ctx, until: str) -> str:
    """Copy files, and report it, until a file exists."""
    log("copying")
    step = 0
    try:
        while not await anyio.Path(until).exists():
            step += 1
            await context.report_progress(step, 100, "Copying")
            await anyio.sleep(0.05)
    except anyio.get_cancelled_exc_class():
        log("cancelled")
        raise
    return "copied"


async def ask_model(context: Ctx, text: str) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    try:
        answer = await context.session.create_message([message], max_tokens=50)
    except McpError as error:
        return f"refused: {error}"
    return f"the model says: {getattr(answer.content, 'text', '')}"


def link() -> list[Any]:
    """Return a link to a resource."""
    uri = AnyUrl("report://rooms")
    return ["See", ResourceLink(type="resource_link", name="rooms", uri=uri)]


async def added(text: str) -> str:
    """Echo."""
    return f"added {text}"


def add_resources(server: FastMCP[Any]) -> None:
    """Add resources and a prompt."""

    @server.resource("report://rooms", name="rooms", description="The report on rooms.")
    def report() -> str:
        """Return a text."""
        return REPORT

    @server.resource("image://plan", name="plan", mime_type="image/png")
    def plan() -> bytes:
        """Return an image."""
        return PIXEL

    @server.resource("room://{name}", name="room")
    def room(name: str) -> str:
        """Describe a room."""
        return f"The {name} room."

    @server.prompt(description="Write an invitation.")
    def invite(guest: str, tone: str = "warm") -> str:
        """Return the text."""
        return f"Write a {tone} invitation for {guest}."


def serve_http() -> None:
    """Serve on a free port. A POST to /unlock adds a tool, and notifies all sessions."""
    server = build()
    app = server.streamable_http_app()
    sessions: list[Any] = []
    low = server._mcp_server
    original = low.request_handlers[ListToolsRequest]

    async def list_tools(request: Any) -> Any:  # noqa: ANN401 - the SDK's types
        sessions.append(low.request_context.session)
        return await original(request)

    low.request_handlers[ListToolsRequest] = list_tools

    async def unlock(_request: Request) -> JSONResponse:
        server.add_tool(added, name="added", description="A tool that was added.")
        for session in sessions:
            await session.send_tool_list_changed()
        return JSONResponse(len(sessions))

    web = Starlette(
        routes=[Route("/unlock", unlock, methods=["POST"]), *app.routes],
        lifespan=lambda _: server.session_manager.run(),
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        print(listening.getsockname()[1], flush=True)  # noqa: T201
        config = uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    else:
        build().run("stdio")
