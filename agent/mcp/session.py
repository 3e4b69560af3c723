"""One open connection to an MCP server, owned by the task that enters and leaves it."""

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import anyio

from agent.errors import McpServerUnusable
from agent.mcp.errors import describe_error

if TYPE_CHECKING:
    from agent.mcp.connections import McpClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[], "AbstractAsyncContextManager[McpClient]"]


class McpSessionLost(McpServerUnusable):
    """The connection to the MCP server is lost.

    Attributes:
        may_have_run: Whether the server may have begun to work on the request.
    """

    def __init__(self, text: str = "", *, was_asked: bool = True) -> None:
        super().__init__(text)
        self.may_have_run = was_asked


class McpSession:
    """A connection that any task may use while its owner runs.

    anyio's cancel scopes must be left by the task that entered them; a run is another task each time. So `run` is
    started in a task group that outlives the runs, and everybody else talks through `call`.

    Args:
        connect: Opens it.
        greet_s: How long the server may take to start and greet.
    """

    def __init__(self, connect: Connect, greet_s: float) -> None:
        self._connect = connect
        self._greet_s = greet_s
        self._client: McpClient | None = None
        self._is_over = False
        self._fault = ""
        self._settled = anyio.Event()
        self._woken = anyio.Event()
        self._opening = anyio.CancelScope()
        self._callers: set[anyio.CancelScope] = set()
        self._idle_s = math.inf
        self._is_closing = False
        self.ended = anyio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer, or for the greeting."""
        return bool(self._callers)

    @property
    def is_usable(self) -> bool:
        """Whether it is open or about to be."""
        return not (self._is_over or self._is_closing)

    def close(self, after_idle_s: float = 0.0) -> None:
        """End it: now, or when nobody has used it for some seconds. Returns at once."""
        self._idle_s = after_idle_s
        if after_idle_s <= 0:
            self._is_closing = True
            if self._client is None:
                self._opening.cancel()
        self._woken.set()

    async def run(self) -> None:
        """Open the connection, hold it until `close`, and leave it. Never raises but when it is cancelled."""
        try:
            with self._opening:
                self._opening.deadline = anyio.current_time() + self._greet_s
                async with self._connect() as client:
                    # From here on nothing is cancelled: leaving in peace lets the server's process end in peace.
                    self._opening.deadline = math.inf
                    await self._greet(client)
                    await self._until_unused(client)
            if not self._settled.is_set():
                self._fault = describe_error(TimeoutError())
        except Exception as error:
            self._fault = self._fault or describe_error(error)
            logger.debug("a connection to an MCP server ended", exc_info=error)
        finally:
            self._is_over = True
            self._client = None
            self._settled.set()
            for scope in self._callers:
                scope.cancel()
            self.ended.set()

    async def wait_ready(self) -> None:
        """Wait until the server has greeted.

        Raises:
            SessionGone: It did not.
        """
        await self._settled.wait()
        if self._client is None:
            raise McpSessionLost(self._fault or "the connection was closed", was_asked=False)

    async def call(self, question: Callable[["McpClient"], Awaitable[T]]) -> T:
        """Ask the server once it has greeted; what its answer says is the caller's.

        Raises:
            SessionGone: There is no connection, or it ended meanwhile.
        """
        asked = False
        with anyio.CancelScope() as scope:
            self._callers.add(scope)
            try:
                await self._settled.wait()
                client = self._client
                if client is not None:
                    asked = True
                    return await question(client)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                # Before anything was sent: the server had ended since the last call.
                asked = False
                self.close()
            finally:
                self._callers.discard(scope)
                self._woken.set()
        raise McpSessionLost(self._fault or "the connection was closed", was_asked=asked)

    async def _greet(self, client: "McpClient") -> None:
        """Greet the server.

        Raises:
            TimeoutError: It did not answer.
        """
        with anyio.fail_after(self._greet_s):
            await client.initialize()
        self._client = client
        self._settled.set()

    async def _until_unused(self, client: "McpClient") -> None:
        """Return when it is to be closed, or nobody has used it for long; pass on what callers left behind."""
        while not self._is_closing:
            self._woken = anyio.Event()
            await client.cancel_abandoned()
            limit = math.inf if self.is_busy else self._idle_s
            with anyio.move_on_after(limit) as waiting:
                await self._woken.wait()
            if waiting.cancelled_caught and not self.is_busy:
                self._is_closing = True
        await client.cancel_abandoned()
