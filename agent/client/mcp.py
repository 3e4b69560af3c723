"""The MCP servers of the extensions file."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agent.client.opened import Opened, View
from agent.errors import McpSettingsRefused


class McpServers(Opened):
    """The MCP servers of the extensions file."""

    async def get_mcp_config(self) -> View:
        """Return the servers by name, secrets masked: `{mcp_servers}`."""
        return {"mcp_servers": await self._systems.mcp.settings.view()}

    async def update_mcp_config(self, mcp_servers: Mapping[str, Mapping[str, Any]]) -> View:
        """Put other servers in the place of all, and return them; the next turns have their tools.

        Args:
            mcp_servers: By name, in the form that `get_mcp_config` gives; `***` stands for the value that is stored.

        Raises:
            McpSettingsRefused: One of them may not be written like this; nothing is changed.
            ExtensionsError: They cannot be written down.
        """
        for name, server in mcp_servers.items():
            if not isinstance(server, Mapping):
                raise McpSettingsRefused(f"{name}: a server is described by a mapping")
        return {"mcp_servers": await self._systems.mcp.settings.replace(mcp_servers)}

    async def switch_mcp_server(self, name: str, *, enabled: bool) -> View:
        """Switch one server on or off, and return it. Raises McpServerNotFound, ExtensionsError."""
        return await self._systems.mcp.settings.switch(name, enabled=enabled)

    async def get_mcp_status(self) -> View:
        """Return how the servers stand and what they offer: `{servers}`."""
        found = [asdict(status) for status in await self._systems.mcp.statuses()]
        return {
            "servers": {
                status.pop("name"): {**status, "tools": list(status["tools"])} for status in found
            }
        }
