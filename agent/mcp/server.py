"""One MCP server: loads its tools, with retries, and calls them. Importing this imports the MCP SDK."""

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import anyio
import httpx
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.interceptors import MCPToolCallRequest, ToolCallInterceptor
from langgraph.errors import GraphInterrupt
from mcp import McpError as SdkError
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Prompt,
    TextContent,
    Tool,
)

from agent.config.mcp import McpConfig
from agent.errors import McpCallFailed, McpServerUnusable
from agent.mcp.adapter import langchain_tool
from agent.mcp.browser import HIDDEN_TOOLS
from agent.mcp.calls import McpCall, McpCaller, McpCallKey
from agent.mcp.connections import McpClient, McpConnection, McpHandlers, open_client
from agent.mcp.errors import ENDED, describe_error
from agent.mcp.oauth import OAuthTokenSource
from agent.mcp.pool import McpSessionPool
from agent.mcp.process import StderrTail
from agent.mcp.response_limits import limited_client
from agent.mcp.sampling import SamplingModel, sample
from agent.mcp.server_config import McpServerConfig
from agent.mcp.session import McpSession, McpSessionLost
from agent.thread_storage import ThreadStorage
from agent.tool_names import matches

log = logging.getLogger(__name__)

T = TypeVar("T")

State = Literal["connecting", "connected", "failed"]

MAX_TOOLS = 500
"""Maximum number of tools, more than any model accepts. Protects against a server whose list never ends."""
MAX_PAUSE_S = 300.0
LIST_PAUSE_S = 1.0
"""Shortest time between two requests for the list after the server announces changes, seconds."""
INSTRUCTIONS_CHARS = 2_000
"""Maximum length of a server's instructions, characters. Every request contains them."""
STDERR_WAIT_S = 0.5
"""How long to wait for the last stderr output of a failed server, seconds."""
MIN_SECRET_CHARS = 6
"""Shorter values are not masked, because they are words such as `true`, and masking them would garble messages."""
SESSION_UNKNOWN = "Session terminated"
"""The SDK's message if a server does not know the session, for example after a restart."""
RETIRED_IDLE_S = 60.0
"""How long a removed server's processes keep running for runs that still use it, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerFactory:
    """Creates servers.

    Attributes:
        sessions: The session pool.
        limits: Returns the current `mcp` section.
        certificates: For HTTPS.
        interceptors: Wrap every call, outermost first.
        folders: Where images of results are saved.
        model: Returns the model for servers in `mcp.sampling`; None = no server may use it.
    """

    sessions: McpSessionPool
    limits: Callable[[], McpConfig]
    certificates: ssl.SSLContext
    interceptors: tuple[ToolCallInterceptor, ...]
    folders: ThreadStorage
    model: SamplingModel | None

    def create(self, name: str, config: McpServerConfig) -> "McpServer":
        """Create a server. It does nothing before `load`."""
        return McpServer(name, config, self)


class McpServer:
    """A server with one configuration. If the configuration changes, a new object replaces it.

    Attributes:
        tools: Its tools, once connected.
        error: Why it could not be loaded, for people.
        attempts: Number of loading attempts.
        first_attempt_done: Set after the first attempt.
        instructions: The server's instructions for its use, for the model.
        has_resources: Whether it offers resources.
        prompts: Its prompts.
    """

    def __init__(self, name: str, config: McpServerConfig, factory: McpServerFactory) -> None:
        self.name = name
        self.config = config
        self.factory = factory
        self.tools: tuple[BaseTool, ...] = ()
        self.error: str | None = None
        self.attempts = 0
        self.first_attempt_done = anyio.Event()
        self.instructions = ""
        self.has_resources = False
        self.prompts: tuple[Prompt, ...] = ()
        self._listed: list[Tool] = []
        self._waiting: dict[McpCallKey, McpCall] = {}
        self._on_loaded: Callable[[], None] = lambda: None
        self._changed_in: McpClient | None = None
        self._is_listing = False
        self._watching: McpSession | None = None
        self._loading = anyio.CancelScope()
        self._stderr = StderrTail()
        self._is_retired = False
        self._is_loaded = False
        self._tokens: OAuthTokenSource | None = None
        if config.oauth is not None and config.oauth.enabled and config.type != "stdio":
            self._tokens = OAuthTokenSource(
                config.oauth, lambda: limited_client(verify=factory.certificates)
            )

    @property
    def state(self) -> State:
        """Its connection state."""
        if self._is_loaded:
            return "connected"
        return "failed" if self.error else "connecting"

    async def load(self, on_loaded: Callable[[], None]) -> None:
        """Load the tools. Retry with growing pauses until it succeeds or the server is retired.

        If the server announces tool changes over HTTP, keep a connection open, and load again when the connection ends.

        Args:
            on_loaded: Called when the tools are available, and when they change.
        """
        self._on_loaded = on_loaded
        with self._loading:
            while True:
                pause = self.factory.limits().retry_seconds
                while not await self._try_load():
                    await anyio.sleep(pause)
                    pause = min(pause * 2, MAX_PAUSE_S)
                on_loaded()
                if self._watching is None:
                    break
                await self._watching.ended.wait()
                await anyio.sleep(pause)
        self.first_attempt_done.set()

    def retire(self) -> None:
        """Stop loading. Close the sessions when the runs that still use them leave them idle."""
        self._is_retired = True
        self._loading.cancel()
        if self._watching is not None:
            self._watching.close()
        self.factory.sessions.drop(self, after_idle_s=RETIRED_IDLE_S)

    async def call(self, request: MCPToolCallRequest, caller: McpCaller) -> CallToolResult:
        """Call a tool in the thread's session. If the session was lost before the call, retry once in a new one.

        Raises:
            McpCallFailed: No response in time, or the server ended during the call.
            McpServerUnusable: There is no connection.
            GraphInterrupt: The server asks a person. The run must end, and the next one joins the call.
        """
        key = caller.key
        call = self._waiting.pop(key, None)
        if call is None or call.is_over:
            call = McpCall(caller)
            self.factory.sessions.start_call(
                partial(call.run, partial(self._call_with_retry, request, call))
            )
        call.caller, is_joined = caller, True
        timeout_s = self.factory.limits().call_timeout_seconds
        try:
            while (question := await call.wait(timeout_s)) is not None:
                call.answer(question, self.name, is_joined=is_joined)
                is_joined = False
        except GraphInterrupt:
            self._waiting[key] = call
            raise
        except TimeoutError as error:
            if self.config.type == "stdio":
                call.close_session()  # the server may hang forever: the next call gets a new process
            reason = f"it did not respond within {timeout_s:g} seconds"
            raise McpCallFailed(reason) from error
        finally:
            if self._waiting.get(key) is not call:
                call.cancel()
        return call.result()

    async def request(
        self, thread_id: str | None, request: Callable[[McpClient], Awaitable[T]]
    ) -> T:
        """Send a request that is not a tool call, in the thread's session.

        Raises:
            McpError: There is no response, or it is an error.
        """
        limits = self.factory.limits()
        session, is_kept = self._session({}, thread_id, limits)
        try:
            with anyio.fail_after(limits.call_timeout_seconds):
                return await session.call(request)
        except TimeoutError as error:
            raise McpCallFailed("it did not respond in time") from error
        except SdkError as error:
            raise McpCallFailed(self._without_secrets(describe_error(error))) from error
        finally:
            if not is_kept:
                session.close()

    async def _call_with_retry(self, request: MCPToolCallRequest, call: McpCall) -> CallToolResult:
        try:
            return await self._call(request, call)
        except McpSessionLost as error:
            if error.may_have_run:
                raise McpCallFailed(ENDED) from error
        return await self._call(request, call)

    async def _call(self, request: MCPToolCallRequest, call: McpCall) -> CallToolResult:
        thread_id = call.caller.key.thread_id
        session, is_kept = self._session(request.headers or {}, thread_id, self.factory.limits())
        call.close_session = session.close
        try:
            result = await session.call(
                lambda client: client.send_tool_call(request.name, request.args, call)
            )
            return self._masked(result) if result.isError else result
        except SdkError as error:
            if error.error.code == CONNECTION_CLOSED:
                session.close()
                raise McpSessionLost(ENDED, may_have_run=True) from error
            if str(error) == SESSION_UNKNOWN:
                session.close()
                raise McpSessionLost(describe_error(error), may_have_run=False) from error
            raise McpCallFailed(self._without_secrets(describe_error(error))) from error
        finally:
            if not is_kept:
                session.close()

    def _session(
        self, headers: Mapping[str, str], thread_id: str | None, limits: McpConfig
    ) -> tuple[McpSession, bool]:
        """Return a session for a call, and whether it stays open, because servers keep state between calls."""
        connection = self._connection(limits).with_headers(headers)
        sessions, timeout_s = self.factory.sessions, limits.connect_timeout_seconds
        # An interceptor's headers belong to the connection and may differ for each call.
        if thread_id is None or (headers and self.config.type != "stdio"):
            return sessions.open(lambda: open_client(connection), timeout_s), False
        idle_s = limits.idle_seconds
        if self._is_retired:
            idle_s = min(idle_s, RETIRED_IDLE_S)
        key = (self, thread_id)
        return sessions.get_or_open(key, lambda: open_client(connection), timeout_s, idle_s), True

    async def _try_load(self) -> bool:
        self.attempts += 1
        self._is_loaded = False
        try:
            self._set_tools(await self._list_tools())
        except Exception as error:
            self._set_error(describe_error(error))
            log.debug("MCP server %s cannot be loaded", self.name, exc_info=error)
            return False
        else:
            self.error, self._is_loaded = None, True
            log.info("MCP server %s provides %d tools", self.name, len(self.tools))
            return True
        finally:
            self.first_attempt_done.set()

    def _set_tools(self, listed: list[Tool]) -> None:
        """Replace the tools if they changed."""
        if listed == self._listed:
            return
        factory = self.factory
        hidden = HIDDEN_TOOLS if self.config.preset else ()
        self.tools = tuple(
            langchain_tool(self.name, tool, self.call, factory.interceptors, factory.folders)
            for tool in listed
            if tool.name not in hidden
        )
        self._listed = listed

    def _offers_changed(self, client: McpClient) -> None:
        """List everything again in the session that announced the change. Other sessions may have other tools."""
        self._changed_in = client
        if not self._is_listing and not self._is_retired:
            self._is_listing = True
            self.factory.sessions.start(self._list_again)

    async def _list_again(self) -> None:
        while (client := self._changed_in) is not None:
            self._changed_in = None
            try:
                with anyio.fail_after(self.factory.limits().discovery_timeout_seconds):
                    self._set_tools(await self._read_server(client))
                self._on_loaded()
            except Exception as error:  # noqa: BLE001 - the old tools stay
                log.warning(
                    "MCP server %s: cannot list tools: %s", self.name, describe_error(error)
                )
            await anyio.sleep(LIST_PAUSE_S)
        self._is_listing = False

    def _set_error(self, fault: str) -> None:
        """Record why the server cannot be used, and log the reason when it changes."""
        fault = self._without_secrets(fault)
        if fault != self.error:
            stderr = self._without_secrets(self._stderr.text.strip())
            shown = f"; stderr: {stderr}" if stderr else ""
            log.warning("MCP server %s is not usable: %s%s", self.name, fault, shown)
        self.error = fault

    def _without_secrets(self, text: str) -> str:
        """Mask configured values, because servers often repeat them in error messages."""
        values = (*self.config.env.values(), *self.config.headers.values())
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= MIN_SECRET_CHARS:
                text = text.replace(value, "***")
        return text

    def _masked(self, failed: CallToolResult) -> CallToolResult:
        """Return a failed result without the configured values."""
        content = [
            block.model_copy(update={"text": self._without_secrets(block.text)})
            if isinstance(block, TextContent)
            else block
            for block in failed.content
        ]
        return failed.model_copy(update={"content": content})

    async def _list_tools(self) -> list[Tool]:
        limits = self.factory.limits()
        connection = self._connection(limits)
        session = self.factory.sessions.open(
            lambda: open_client(connection), limits.connect_timeout_seconds
        )
        self._watching = None
        try:
            await session.wait_ready()
            with anyio.fail_after(limits.discovery_timeout_seconds):
                listed = await session.call(self._read_server)
                announces_changes = await session.call(_announces_changes)
        except Exception:
            session.close()
            with anyio.move_on_after(STDERR_WAIT_S):
                await session.ended.wait()
            raise
        if announces_changes and self.config.type != "stdio" and not self._is_retired:
            self._watching = session
        else:
            session.close()
        return listed

    async def _read_server(self, client: McpClient) -> list[Tool]:
        """Return the server's tools. Record its resources and prompts, unless it fails to list them."""
        self.instructions = client.instructions[:INSTRUCTIONS_CHARS]
        offers = client.offers
        self.has_resources, self.prompts = False, ()
        if offers.resources is not None:
            with suppress(SdkError):
                self.has_resources = bool(
                    (await client.list_resources()).resources
                    or (await client.list_resource_templates()).resourceTemplates
                )
        if offers.prompts is not None:
            with suppress(SdkError):
                self.prompts = tuple((await client.list_prompts()).prompts)
        # Some servers have tools without announcing them.
        if offers.tools is None and (offers.resources is not None or offers.prompts is not None):
            return []
        return await _all_tools(client)

    def _connection(self, limits: McpConfig) -> McpConnection:
        model = self.factory.model if matches(self.name, limits.sampling) else None
        return McpConnection(
            config=self.config,
            tokens=self._tokens,
            certificates=self.factory.certificates,
            timeout_s=limits.connect_timeout_seconds,
            headers={},
            stderr=self._stderr,
            handlers=McpHandlers(
                on_changed=self._offers_changed,
                sample=None if model is None else partial(sample, model),
            ),
        )


async def _announces_changes(client: McpClient) -> bool:
    offers = client.offers
    return any(
        one is not None and one.listChanged
        for one in (offers.tools, offers.prompts, offers.resources)
    )


async def _all_tools(client: McpClient) -> list[Tool]:
    """Return all pages of the server's tool list.

    Raises:
        McpServerUnusable: The list does not end.
    """
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page, cursor = await client.list_tool_page(cursor)
        tools += page
        if len(tools) > MAX_TOOLS or (not page and cursor):
            raise McpServerUnusable(f"it lists more than {MAX_TOOLS} tools, or empty pages")
        if not cursor:
            return tools


def load_certificates() -> ssl.SSLContext:
    """Load the certificates for HTTPS. Blocking; takes about 20 ms."""
    return httpx.create_ssl_context()
