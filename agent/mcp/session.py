"""One open connection to an MCP server, owned by the task that opens and closes it."""

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import anyio

from agent.errors import McpServerUnusable
from agent.mcp.errors import describe_error, is_refusal

if TYPE_CHECKING:
    from agent.mcp.connections import McpClient

log = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[], "AbstractAsyncContextManager[McpClient]"]


class McpSessionLost(McpServerUnusable):
    """The connection to the MCP server is lost.

    Attributes:
        may_have_run: Whether the server may have started to process the request.
    """

    def __init__(self, text: str = "", *, may_have_run: bool = True) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run


class McpSession:
    """A connection that any task may use while its owner runs.

    The task that enters an anyio cancel scope must also exit it, but each run of the agent is a different task. So
    `run` is started in a task group that outlives these runs, and other tasks use `call`.

    Args:
        connect: Opens the connection.
        connect_timeout_s: Time limit for connecting, and for the initialize handshake.
    """

    def __init__(self, connect: Connect, connect_timeout_s: float) -> None:
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._client: McpClient | None = None
        self._is_over = False
        self._fault = ""
        self._is_refused = False
        self._opened_or_failed = anyio.Event()
        self._changed = anyio.Event()
        self._connecting = anyio.CancelScope()
        self._callers: set[anyio.CancelScope] = set()
        self._idle_s = math.inf
        self._is_closing = False
        self.ended = anyio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether a caller is waiting for a response or for the connection."""
        return bool(self._callers)

    @property
    def is_usable(self) -> bool:
        """Whether it is open or being opened."""
        return not (self._is_over or self._is_closing)

    def close(self, after_idle_s: float = 0.0) -> None:
        """Close it now, or once it has been idle for some seconds. Returns at once."""
        self._idle_s = after_idle_s
        if after_idle_s <= 0:
            self._is_closing = True
            if self._client is None:
                self._connecting.cancel()
        self._changed.set()

    async def run(self) -> None:
        """Open the connection, keep it until `close`, and close it. Raises only if canceled."""
        try:
            with self._connecting:
                self._connecting.deadline = anyio.current_time() + self._connect_timeout_s
                async with self._connect() as client:
                    # No deadline from here on, so that the server's process can end cleanly.
                    self._connecting.deadline = math.inf
                    await self._initialize(client)
                    await self._wait_until_unused(client)
            if not self._opened_or_failed.is_set():
                self._fault = describe_error(TimeoutError())
        except Exception as error:
            self._fault = self._fault or describe_error(error)
            # With several callers, nobody knows whose request it was.
            self._is_refused = len(self._callers) == 1 and is_refusal(error)
            log.debug("MCP connection ended", exc_info=error)
        finally:
            self._is_over = True
            self._client = None
            self._opened_or_failed.set()
            for scope in self._callers:
                scope.cancel()
            self.ended.set()

    async def wait_ready(self) -> None:
        """Wait until the connection is open.

        Raises:
            McpSessionLost: It could not be opened.
        """
        await self._opened_or_failed.wait()
        if self._client is None:
            raise McpSessionLost(self._fault or "the connection was closed", may_have_run=False)

    async def call(self, request: Callable[["McpClient"], Awaitable[T]]) -> T:
        """Send a request once the connection is open.

        Raises:
            McpSessionLost: There is no connection, or it was lost during the call.
        """
        may_have_run = False
        with anyio.CancelScope() as scope:
            self._callers.add(scope)
            try:
                await self._opened_or_failed.wait()
                client = self._client
                if client is not None:
                    may_have_run = True
                    return await request(client)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                # Raised before anything is sent, because the server ended after the previous call.
                may_have_run = False
                self.close()
            finally:
                self._callers.discard(scope)
                self._changed.set()
        raise McpSessionLost(
            self._fault or "the connection was closed",
            may_have_run=may_have_run and not self._is_refused,
        )

    async def _initialize(self, client: "McpClient") -> None:
        with anyio.fail_after(self._connect_timeout_s):
            await client.initialize()
        self._client = client
        self._opened_or_failed.set()

    async def _wait_until_unused(self, client: "McpClient") -> None:
        """Wait until the session is closed or has been idle too long. Send cancellations in the meantime."""
        while not self._is_closing:
            self._changed = anyio.Event()
            await client.cancel_abandoned()
            limit = math.inf if self.is_busy else self._idle_s
            with anyio.move_on_after(limit) as waiting:
                await self._changed.wait()
            if waiting.cancelled_caught and not self.is_busy:
                self._is_closing = True
        await client.cancel_abandoned()
