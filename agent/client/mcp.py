"""Client methods for the MCP servers of the extensions file."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent.client.api import ClientApi, JsonObject
from agent.errors import McpSettingsInvalid
from agent.mcp.server_config import describe_validation_error
from agent.mcp.settings import McpServerUpdate

_SERVERS = TypeAdapter(dict[str, McpServerUpdate])


class McpApi(ClientApi):
    """The MCP servers of the extensions file."""

    async def get_mcp_config(self) -> JsonObject:
        """Return the servers by name, secrets masked: `{mcp_servers}`."""
        return {"mcp_servers": await self._services.mcp.settings.list_servers()}

    async def update_mcp_config(self, mcp_servers: Mapping[str, Any]) -> JsonObject:
        """Replace all servers and return them. Their tools are available starting with the next turn.

        Args:
            mcp_servers: By name, in the form of `get_mcp_config`; see `McpServerUpdate`.

        Raises:
            McpSettingsInvalid: A server is not allowed. Nothing is changed.
            ExtensionsError: The extensions file cannot be written.
        """
        try:
            given = _SERVERS.validate_python(dict(mcp_servers))
        except ValidationError as error:
            raise McpSettingsInvalid(describe_validation_error(error)) from None
        servers = {name: server.model_dump() for name, server in given.items()}
        return {"mcp_servers": await self._services.mcp.settings.replace(servers)}

    async def switch_mcp_server(self, name: str, *, enabled: bool) -> JsonObject:
        """Enable or disable a server and return it. Raises McpServerNotFound, ExtensionsError."""
        return await self._services.mcp.settings.set_enabled(name, enabled=enabled)

    async def get_mcp_status(self) -> JsonObject:
        """Return the servers' status and tools: `{servers}`."""
        found = [asdict(status) for status in await self._services.mcp.statuses()]
        return {
            "servers": {
                status.pop("name"): {**status, "tools": list(status["tools"])} for status in found
            }
        }
