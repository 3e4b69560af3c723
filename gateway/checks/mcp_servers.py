"""Checks the MCP servers: starts or connects to each one, and lists its tools."""

from collections.abc import Iterable
from typing import Any

from agent.extensions import ExtensionsFile
from agent.mcp.registry import McpServerInfo, open_mcp
from agent.thread_storage import ThreadStorage
from bots.common.diagnosis import CheckResult, Severity, problem
from gateway.config import Config

CHECK_S = 30.0
"""How long to wait for servers, seconds: `npx` and `uvx` may download packages first."""


async def check_mcp_servers(config: Config) -> list[McpServerInfo]:
    """Return the state of each server in the extensions file after one attempt, within `CHECK_S`."""
    extensions = ExtensionsFile(*config.extensions)
    if not (await extensions.load()).mcp_servers:
        return []
    async with open_mcp(
        extensions, config.environment, lambda: config.agent.mcp, ThreadStorage(config.files)
    ) as servers:
        return list(await servers.load(CHECK_S))


def describe_server(server: McpServerInfo) -> str:
    """Return a server's tools, or why it has none.

    >>> describe_server(McpServerInfo(name="a", state="connected", tools=("a_x", "a_y")))
    '2 tools: a_x, a_y'
    >>> describe_server(McpServerInfo(name="a", state="failed", error="its command is not installed"))
    'its command is not installed'
    """
    if server.state == "disabled":
        return "disabled"
    if server.state == "connecting":
        return f"no answer within {CHECK_S:g} seconds"
    if server.state == "failed":
        return server.error or "not usable"
    count = len(server.tools)
    names = ", ".join(server.tools)
    return f"{count} tool{'' if count == 1 else 's'}{f': {names}' if names else ''}"


def server_result(server: McpServerInfo, *, has_waited: bool = True) -> CheckResult:
    """Return the result of a server's check. `has_waited`: whether it had `CHECK_S` to connect."""
    if server.state == "connecting" and not has_waited:
        return CheckResult(subject=server.name, text="is connecting", severity=Severity.NOTE)
    text = describe_server(server)
    if is_usable(server):
        return CheckResult(subject=server.name, text=text)
    return problem(server.name, text, fix="see docs/howto/connect-mcp.md")


def server_report(servers: Iterable[McpServerInfo]) -> dict[str, dict[str, Any]]:
    """Return the servers for programs."""
    return {
        server.name: {"state": server.state, "tools": server.tools, "error": server.error}
        for server in servers
    }


def is_usable(server: McpServerInfo) -> bool:
    """Return whether a server is connected, or disabled on purpose."""
    return server.state in ("connected", "disabled")
