"""Opens connections to MCP servers: processes, SSE, streamable HTTP. Importing this imports the MCP SDK."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import httpx
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    ClientRequest,
)

from agent.mcp.oauth import OAuthTokenAuth, OAuthTokenSource
from agent.mcp.process import StderrTail, run_server_process
from agent.mcp.server_config import McpServerConfig

TELL_S: Final = 1.0
"""How long telling a server that nobody waits any more may take."""


class McpClient(ClientSession):
    """A client that asks for nothing but the answer, and remembers for whose answer nobody waits any more."""

    def __init__(self, reader: Any, writer: Any) -> None:  # noqa: ANN401 - the SDK's streams
        super().__init__(reader, writer)
        self._abandoned: list[int] = []

    async def send_tool_call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. The SDK's own method would list all tools first, to check structured results that go unused."""
        request_id = self._request_id
        params = CallToolRequestParams(name=name, arguments=arguments)
        try:
            return await self.send_request(
                ClientRequest(CallToolRequest(params=params)), CallToolResult
            )
        except anyio.get_cancelled_exc_class():
            # A task that is being cancelled can send nothing reliably: see `tell_abandoned`.
            self._abandoned.append(request_id)
            raise

    async def cancel_abandoned(self) -> None:
        """Tell the server which of its work nobody waits for any more, within `TELL_S`."""
        with anyio.move_on_after(TELL_S):
            while self._abandoned:
                params = CancelledNotificationParams(
                    requestId=self._abandoned.pop(), reason="nobody waits for it"
                )
                await self.send_notification(
                    ClientNotification(CancelledNotification(params=params))
                )


@dataclass(frozen=True, kw_only=True)
class McpConnection:
    """How one server is reached.

    Attributes:
        name: The server, for logs.
        tokens: Where its tokens come from; None = it wants none.
        certificates: Made once: reading them takes some 20 ms.
        timeout_s: For connecting; an answer may take as long as its caller waits.
        headers: Beside those of the configuration.
        stderr: Gets what the server's process writes to its standard error.
    """

    name: str
    config: McpServerConfig
    tokens: OAuthTokenSource | None
    certificates: ssl.SSLContext
    timeout_s: float
    headers: Mapping[str, str]
    stderr: StderrTail

    def with_headers(self, headers: Mapping[str, str]) -> "McpConnection":
        """Return the same way with further headers."""
        return replace(self, headers={**self.headers, **headers})


@asynccontextmanager
async def open_client(way: McpConnection) -> AsyncIterator[McpClient]:
    """Yield a client that has not greeted the server yet. Enter and leave it in one task.

    Raises:
        OSError, httpx.HTTPError: There is no connection; perhaps inside an exception group.
    """
    opened = {"stdio": _stdio, "sse": _sse, "http": _http}[way.config.type]
    async with opened(way) as (reader, writer), McpClient(reader, writer) as client:
        yield client


def _stdio(way: McpConnection) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    return run_server_process(way.config, way.stderr)


@asynccontextmanager
async def _sse(way: McpConnection) -> AsyncIterator[tuple[Any, Any]]:
    def client(
        headers: dict[str, str] | None = None,  # noqa: ARG001 - the SDK's signature; the way has them all
        timeout: httpx.Timeout | None = None,  # noqa: ARG001
        auth: httpx.Auth | None = None,  # noqa: ARG001
    ) -> httpx.AsyncClient:
        return _client(way)

    async with sse_client(str(way.config.url), httpx_client_factory=client) as streams:
        yield streams


@asynccontextmanager
async def _http(way: McpConnection) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        _client(way) as client,
        streamable_http_client(str(way.config.url), http_client=client) as (reader, writer, _),
    ):
        yield reader, writer


def _client(way: McpConnection) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers={**way.config.headers, **way.headers},
        # No deadline for reading: the callers have theirs, and a server may be silent while it works.
        timeout=httpx.Timeout(way.timeout_s, read=None),
        auth=OAuthTokenAuth(way.tokens) if way.tokens is not None else None,
        verify=way.certificates,
    )
