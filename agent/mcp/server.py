"""One MCP server: its tools are loaded until that succeeds once, then called. Importing this imports the MCP SDK."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import anyio
import anyio.to_thread
import httpx
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.interceptors import MCPToolCallRequest, ToolCallInterceptor
from mcp import McpError as SdkError
from mcp.types import CONNECTION_CLOSED, CallToolResult, PaginatedRequestParams, Tool

from agent.config.mcp import McpConfig
from agent.errors import McpCallFailed, McpServerUnusable
from agent.mcp.adapter import langchain_tool
from agent.mcp.connections import McpClient, McpConnection, open_client
from agent.mcp.errors import ENDED, describe_error
from agent.mcp.oauth import OAuthTokenSource
from agent.mcp.pool import McpSessionPool
from agent.mcp.process import StderrTail
from agent.mcp.server_config import McpServerConfig
from agent.mcp.session import McpSession, McpSessionLost

logger = logging.getLogger(__name__)

State = Literal["connecting", "connected", "failed"]

MAX_TOOLS: Final = 500
"""No model takes more; a server that lists without end is stopped here."""
MAX_PAUSE_S: Final = 300.0
LAST_WORDS_S: Final = 0.5
"""How long the last words of a broken server are waited for."""
MIN_SECRET_CHARS: Final = 6
"""Shorter values are words like `true`; hiding them would only make a text unreadable."""
RETIRED_IDLE_S: Final = 60.0
"""How long the processes of a server that was taken away wait for the runs that still know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerFactory:
    """What all servers use.

    Attributes:
        limits: The `mcp` section that holds now.
        certificates: For HTTPS.
        interceptors: What stands around every call, outermost first.
    """

    sessions: McpSessionPool
    limits: Callable[[], McpConfig]
    certificates: ssl.SSLContext
    interceptors: tuple[ToolCallInterceptor, ...]

    def create(self, name: str, config: McpServerConfig) -> "McpServer":
        """Make a server; it does nothing before `load`."""
        return McpServer(name, config, self)


class McpServer:
    """A server by one state of its entry; another entry makes another object.

    Attributes:
        tools: What it offers, once it is connected.
        error: Why it could not be loaded, for people.
        attempts: How often it was tried.
        first_attempt_done: Is set after the first attempt.
    """

    def __init__(self, name: str, config: McpServerConfig, shared: McpServerFactory) -> None:
        self.name = name
        self.config = config
        self.tools: tuple[BaseTool, ...] = ()
        self.error: str | None = None
        self.attempts = 0
        self.first_attempt_done = anyio.Event()
        self._shared = shared
        self._loading = anyio.CancelScope()
        self._words = StderrTail()
        self._is_retired = False
        self._is_loaded = False
        self._tokens: OAuthTokenSource | None = None
        if config.oauth is not None and config.oauth.enabled and config.type != "stdio":
            self._tokens = OAuthTokenSource(config.oauth, self._token_client)

    @property
    def state(self) -> State:
        """How it stands."""
        if self._is_loaded:
            return "connected"
        return "failed" if self.error else "connecting"

    def is_of(self, shared: McpServerFactory) -> bool:
        """Say whether it was made with this."""
        return self._shared is shared

    async def load(self, told: Callable[[], None]) -> None:
        """Load the tools; try again with growing pauses until it works or the server is retired.

        Args:
            told: Is called when there are tools.
        """
        pause = self._shared.limits().retry_seconds
        with self._loading:
            while not await self._is_tried():
                await anyio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE_S)
            told()
        self.first_attempt_done.set()

    def retire(self) -> None:
        """Stop loading; end its sessions when the runs that still know it leave them alone."""
        self._is_retired = True
        self._loading.cancel()
        self._shared.sessions.drop(self, after_idle_s=RETIRED_IDLE_S)

    async def call(self, request: MCPToolCallRequest, thread_id: str | None) -> CallToolResult:
        """Call a tool in the thread's session; one that was lost meanwhile is opened anew, once.

        Raises:
            McpCallFailed: It did not answer in time, or ended while it worked.
            McpServerUnusable: There is no connection.
        """
        try:
            return await self._called(request, thread_id)
        except McpSessionLost as error:
            if error.may_have_run:
                raise McpCallFailed(ENDED) from error
        return await self._called(request, thread_id)

    async def _called(self, request: MCPToolCallRequest, thread_id: str | None) -> CallToolResult:
        limits = self._shared.limits()
        session, is_kept = self._session(request, thread_id, limits)
        try:
            with anyio.fail_after(limits.call_timeout_seconds):
                return await session.call(
                    lambda client: client.send_tool_call(request.name, request.args)
                )
        except TimeoutError as error:
            # It may hang for good: the next call gets another process.
            session.close()
            said = f"it did not answer within {limits.call_timeout_seconds:g} seconds"
            raise McpCallFailed(said) from error
        except SdkError as error:
            if error.error.code == CONNECTION_CLOSED:
                session.close()
                raise McpSessionLost("the connection was closed", was_asked=True) from error
            raise McpCallFailed(describe_error(error)) from error
        finally:
            if not is_kept:
                session.close()

    def _session(
        self, request: MCPToolCallRequest, thread_id: str | None, limits: McpConfig
    ) -> tuple[McpSession, bool]:
        """Return the session of a call, and whether it stays open: those of processes hold what they did so far."""
        way = self._way(limits).with_headers(request.headers or {})
        greet_s = limits.connect_timeout_seconds
        if self.config.type != "stdio" or thread_id is None:
            return self._shared.sessions.open(lambda: open_client(way), greet_s), False
        idle_s = min(
            limits.idle_seconds, RETIRED_IDLE_S if self._is_retired else limits.idle_seconds
        )
        key = (self, thread_id)
        return self._shared.sessions.get_or_open(
            key, lambda: open_client(way), greet_s, idle_s
        ), True

    async def _is_tried(self) -> bool:
        self.attempts += 1
        try:
            self.tools = tuple(self._tool(tool) for tool in await self._listed())
        except Exception as error:
            self._note(describe_error(error))
            logger.debug("the MCP server %s", self.name, exc_info=error)
            return False
        else:
            self.error, self._is_loaded = None, True
            logger.info("the MCP server %s offers %d tools", self.name, len(self.tools))
            return True
        finally:
            self.first_attempt_done.set()

    def _tool(self, tool: Tool) -> BaseTool:
        shared = self._shared
        return langchain_tool(self.name, tool, self.call, shared.interceptors, self._result_chars)

    def _note(self, fault: str) -> None:
        """Keep why it cannot be used; it is logged when it is news."""
        fault = self._without_secrets(fault)
        if fault != self.error:
            words = self._without_secrets(self._words.text.strip())
            said = f"; its last words: {words}" if words else ""
            logger.warning("the MCP server %s is not usable: %s%s", self.name, fault, said)
        self.error = fault

    def _without_secrets(self, text: str) -> str:
        """Hide what the entry gave the server: servers like to repeat it in their complaints."""
        given = (*self.config.env.values(), *self.config.headers.values())
        for value in sorted(given, key=len, reverse=True):
            if len(value) >= MIN_SECRET_CHARS:
                text = text.replace(value, "***")
        return text

    async def _listed(self) -> list[Tool]:
        limits = self._shared.limits()
        way = self._way(limits)
        session = self._shared.sessions.open(
            lambda: open_client(way), limits.connect_timeout_seconds
        )
        try:
            await session.wait_ready()
            with anyio.fail_after(limits.discovery_timeout_seconds):
                return await session.call(_all_tools)
        except Exception:
            session.close()
            with anyio.move_on_after(LAST_WORDS_S):
                await session.ended.wait()
            raise
        finally:
            session.close()

    def _way(self, limits: McpConfig) -> McpConnection:
        return McpConnection(
            name=self.name,
            config=self.config,
            tokens=self._tokens,
            certificates=self._shared.certificates,
            timeout_s=limits.connect_timeout_seconds,
            headers={},
            stderr=self._words,
        )

    def _token_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=self._shared.certificates)

    def _result_chars(self) -> int:
        return self._shared.limits().result_max_chars


async def _all_tools(client: McpClient) -> list[Tool]:
    """Return the server's tools, page by page.

    Raises:
        McpServerUnusable: There is no end of them.
    """
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        if len(tools) > MAX_TOOLS or (not page.tools and page.nextCursor):
            raise McpServerUnusable(f"it lists more than {MAX_TOOLS} tools, or pages without any")
        cursor = page.nextCursor
        if not cursor:
            return tools


def load_certificates() -> ssl.SSLContext:
    """Read the certificates that HTTPS is checked with. Blocking, some 20 ms."""
    return httpx.create_ssl_context()
