"""Connects to MCP servers over stdio, SSE and streamable HTTP. Importing this imports the MCP SDK."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import httpx
from anyio.abc import TaskGroup
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    INVALID_REQUEST,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    ClientRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InitializeResult,
    ListToolsRequest,
    PaginatedRequestParams,
    PromptListChangedNotification,
    RequestParams,
    ResourceListChangedNotification,
    Result,
    ServerCapabilities,
    ServerNotification,
    Tool,
    ToolListChangedNotification,
)
from typing_extensions import override

from agent.mcp.browser import run_browser_process
from agent.mcp.calls import McpCall
from agent.mcp.elicitation import DECLINED
from agent.mcp.oauth import OAuthTokenAuth, OAuthTokenSource
from agent.mcp.process import StderrTail, run_server_process
from agent.mcp.response_limits import limited_client
from agent.mcp.results import parse_result, parse_tools
from agent.mcp.server_config import McpServerConfig
from agent.trace_context import trace_headers

TOO_MANY_SAMPLES = "a server may use the model only during its tool calls, and a few times in each"

CANCEL_S = 1.0
"""Time limit for sending cancellations to a server."""


_CHANGES = (
    ToolListChangedNotification,
    ResourceListChangedNotification,
    PromptListChangedNotification,
)

CLIENT = Implementation(name="parley", version="1")

Sample = Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult | ErrorData]]
"""Answers a server's request to the model."""


@dataclass(frozen=True, kw_only=True)
class McpHandlers:
    """Handlers for messages that a server sends on its own.

    Attributes:
        on_changed: Called when the server's tools, resources or prompts have changed.
        sample: Answers its requests to the model; None = it may not send any.
    """

    on_changed: Callable[["McpClient"], None]
    sample: Sample | None = None


class McpClient(ClientSession):
    """Client session that knows its running calls, and records the requests whose callers were canceled.

    Args:
        reader, writer: The SDK's streams.
        handlers: Handle the server's requests and notifications.
        tasks: Runs the handlers of the server's requests. The session keeps reading while a person takes minutes to
            answer.

    Attributes:
        instructions: The server's instructions for its use; "" before the handshake.
        offers: The capabilities that it offers.
    """

    def __init__(self, reader: Any, writer: Any, handlers: McpHandlers, tasks: TaskGroup) -> None:  # noqa: ANN401 - the SDK's streams
        super().__init__(
            reader,
            writer,
            elicitation_callback=self._elicit,
            sampling_callback=self._sample if handlers.sample is not None else None,
            message_handler=self._handle_message,
            client_info=CLIENT,
        )
        self.instructions = ""
        self.offers = ServerCapabilities()
        self._handlers = handlers
        self._tasks = tasks
        self._calls: list[McpCall] = []
        self._abandoned: list[int] = []

    @override
    async def initialize(self) -> InitializeResult:
        server = await super().initialize()
        self.instructions, self.offers = (server.instructions or "").strip(), server.capabilities
        return server

    async def send_tool_call(
        self, name: str, arguments: dict[str, Any], call: McpCall
    ) -> CallToolResult:
        """Call a tool. The SDK's method would first list all tools to validate structured results, which go unused."""
        meta = RequestParams.Meta.model_validate(trace_headers()) if trace_headers() else None
        params = CallToolRequestParams(name=name, arguments=arguments, _meta=meta)
        request_id = self._request_id
        self._calls.append(call)
        try:
            # Read the raw answer, because the SDK rejects a whole answer if one part is unknown.
            answer = await self.send_request(
                ClientRequest(CallToolRequest(params=params)),
                Result,
                progress_callback=call.report_progress,
            )
        except anyio.get_cancelled_exc_class():
            # A canceled task cannot send reliably; see `cancel_abandoned`.
            self._abandoned.append(request_id)
            raise
        finally:
            self._calls.remove(call)
        return parse_result(answer.model_extra or {})

    async def list_tool_page(self, cursor: str | None) -> tuple[list[Tool], str | None]:
        """Return one page of the server's tools and the cursor of the next page. Skips tools that cannot be parsed."""
        params = PaginatedRequestParams(cursor=cursor)
        answer = await self.send_request(ClientRequest(ListToolsRequest(params=params)), Result)
        page = answer.model_extra or {}
        after = page.get("nextCursor")
        return parse_tools(page.get("tools")), after if isinstance(after, str) else None

    async def cancel_abandoned(self) -> None:
        """Send cancellations for requests whose callers were canceled, within `CANCEL_S`."""
        with anyio.move_on_after(CANCEL_S):
            while self._abandoned:
                params = CancelledNotificationParams(
                    requestId=self._abandoned.pop(), reason="the caller was cancelled"
                )
                await self.send_notification(
                    ClientNotification(CancelledNotification(params=params))
                )

    @override
    async def _received_request(self, responder: Any) -> None:
        self._tasks.start_soon(super()._received_request, responder)

    async def _handle_message(self, message: object) -> None:
        if isinstance(message, ServerNotification) and isinstance(message.root, _CHANGES):
            self._handlers.on_changed(self)

    async def _elicit(
        self,
        context: Any,  # noqa: ANN401, ARG002 - the SDK's signature
        params: ElicitRequestParams,
    ) -> ElicitResult:
        """Let a person answer. The protocol does not say which call a question belongs to, so take the oldest one."""
        call = next((one for one in self._calls if one.caller.can_ask), None)
        return DECLINED if call is None else await call.ask(params)

    async def _sample(
        self,
        context: Any,  # noqa: ANN401, ARG002 - the SDK's signature
        params: CreateMessageRequestParams,
    ) -> CreateMessageResult | ErrorData:
        call = next(iter(self._calls), None)
        if call is None or self._handlers.sample is None or not call.may_sample():
            return ErrorData(code=INVALID_REQUEST, message=TOO_MANY_SAMPLES)
        return await self._handlers.sample(params)


@dataclass(frozen=True, kw_only=True)
class McpConnection:
    """How to connect to one server.

    Attributes:
        config: Its configuration.
        tokens: OAuth tokens; None = no OAuth.
        certificates: Certificates for HTTPS. They are loaded once, because loading takes about 20 ms.
        timeout_s: Time limit for connecting. Callers limit the time for responses.
        headers: Additional headers.
        stderr: Collects the process's stderr.
        handlers: Handlers for messages that the server sends on its own.
    """

    config: McpServerConfig
    tokens: OAuthTokenSource | None
    certificates: ssl.SSLContext
    timeout_s: float
    headers: Mapping[str, str]
    stderr: StderrTail
    handlers: McpHandlers

    def with_headers(self, headers: Mapping[str, str]) -> "McpConnection":
        """Return a copy with additional headers."""
        return replace(self, headers={**self.headers, **headers})


@asynccontextmanager
async def open_client(connection: McpConnection) -> AsyncIterator[McpClient]:
    """Yield a client before the initialize handshake. Enter and exit it in one task.

    Raises:
        OSError, httpx.HTTPError: It cannot connect; may be inside an exception group.
    """
    if connection.config.type == "stdio":
        run = run_browser_process if connection.config.preset else run_server_process
        streams = run(connection.config, connection.stderr)
    else:
        streams = (_sse if connection.config.type == "sse" else _http)(connection)
    async with (
        streams as (reader, writer),
        anyio.create_task_group() as tasks,
        McpClient(reader, writer, connection.handlers, tasks) as client,
    ):
        try:
            yield client
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _sse(connection: McpConnection) -> AsyncIterator[tuple[Any, Any]]:
    def client(
        headers: dict[str, str] | None = None,  # noqa: ARG001 - the SDK's signature; `_client` sets them
        timeout: httpx.Timeout | None = None,  # noqa: ARG001
        auth: httpx.Auth | None = None,  # noqa: ARG001
    ) -> httpx.AsyncClient:
        return _client(connection)

    async with sse_client(str(connection.config.url), httpx_client_factory=client) as streams:
        yield streams


@asynccontextmanager
async def _http(connection: McpConnection) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        _client(connection) as client,
        streamable_http_client(str(connection.config.url), http_client=client) as (
            reader,
            writer,
            _,
        ),
    ):
        yield reader, writer


def _client(connection: McpConnection) -> httpx.AsyncClient:
    return limited_client(
        headers={**connection.config.headers, **connection.headers},
        # No read timeout: callers have deadlines, and a server may be silent while it works.
        timeout=httpx.Timeout(connection.timeout_s, read=None),
        auth=OAuthTokenAuth(connection.tokens) if connection.tokens is not None else None,
        verify=connection.certificates,
    )
