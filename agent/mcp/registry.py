"""The tools of all MCP servers that are switched on, as the extensions file says now.

Nothing of the MCP SDK is imported before the first server is configured: that import takes a second.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from langchain_core.tools import BaseTool

from agent.config.mcp import McpConfig
from agent.errors import AgentError, McpServerUnusable
from agent.extensions import Extensions, ExtensionsFile
from agent.importer import import_object
from agent.mcp.pool import McpSessionPool
from agent.mcp.server_config import McpServerConfig, is_disabled, parse_server
from agent.mcp.settings import McpSettings
from agent.mcp.tool_names import unique_names

if TYPE_CHECKING:
    from agent.mcp.server import McpServer, McpServerFactory

logger = logging.getLogger(__name__)

FIRST_S: Final = 10.0
"""How long after a change runs wait for servers that were never tried; later their tools come with a later run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerInfo:
    """How one server stands.

    Attributes:
        state: `disabled`, `connecting`, `connected` or `failed`.
        tools: The names by which the agent knows its tools.
        error: Why it failed, for people.
        attempts: How often loading it was tried.
    """

    name: str
    state: str
    tools: tuple[str, ...] = ()
    error: str | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolSet:
    """One state of the tools. Another state has another number.

    Attributes:
        version: 0 = there were never any.
    """

    version: int = 0
    tools: tuple[BaseTool, ...] = field(default=(), compare=False)


class McpToolRegistry:
    """Keeps servers loaded as the extensions file says, and gives their tools.

    A run that is under way keeps the tools it began with; servers that were changed or taken away live until then.

    Args:
        extensions: The file.
        environment: Where `$NAME` in it is looked up.
        limits: The `mcp` section that holds now.
        tasks: Owns everything that runs between the runs.

    Attributes:
        settings: The servers' entries, for the API.
        sessions: The open connections.
    """

    def __init__(
        self,
        extensions: ExtensionsFile,
        environment: Mapping[str, str],
        limits: Callable[[], McpConfig],
        tasks: TaskGroup,
    ) -> None:
        self._extensions = extensions
        self._environment = environment
        self._limits = limits
        self.settings = McpSettings(extensions, environment, limits)
        self.sessions = McpSessionPool(tasks, lambda: limits().max_sessions)
        self._servers: dict[str, McpServer] = {}
        self._faults: dict[str, str] = {}
        self._disabled: tuple[str, ...] = ()
        self._shared: tuple[tuple[str, ...], McpServerFactory] | None = None
        self._signature: str | None = None
        self._edition = McpToolSet()
        self._names: Mapping[tuple[str, str], str] = {}
        self._patience = 0.0
        self._lock = anyio.Lock()

    async def current_tools(self) -> McpToolSet:
        """Return the tools as they are now. Cheap while nothing changes: the file is looked at, no more.

        For `FIRST_S` after a change it waits for servers that were not tried yet; one that is slower or broken is
        loaded in the background, and its tools come with a later run.
        """
        await self._follow()
        waiting = [
            server for server in self._servers.values() if not server.first_attempt_done.is_set()
        ]
        with anyio.CancelScope(deadline=self._patience):
            for server in waiting:
                await server.first_attempt_done.wait()
        return self._edition

    @property
    def loading(self) -> tuple["McpServer", ...]:
        """The servers that have no tools yet."""
        return tuple(s for s in self._servers.values() if s.state != "connected")

    async def statuses(self) -> tuple[McpServerInfo, ...]:
        """Return how every server of the file stands, without waiting for any."""
        await self._follow()
        found = [McpServerInfo(name=name, state="disabled") for name in self._disabled]
        found += [
            McpServerInfo(name=name, state="failed", error=error)
            for name, error in self._faults.items()
        ]
        for server in self._servers.values():
            names = [name for (owner, _), name in self._names.items() if owner == server.name]
            found.append(
                McpServerInfo(
                    name=server.name,
                    state=server.state,
                    tools=tuple(names),
                    error=server.error,
                    attempts=server.attempts,
                )
            )
        return tuple(sorted(found, key=lambda status: status.name))

    async def aclose(self) -> None:
        """Stop loading and end all sessions, within a bound."""
        for server in self._servers.values():
            server.retire()
        await self.sessions.aclose()

    async def _follow(self) -> None:
        """Do what the file says, if it says something new."""
        found = await self._extensions.load()
        if found.signature == self._signature:
            return
        async with self._lock:
            if found.signature != self._signature:
                await self._adopt(found)
                self._signature = found.signature

    async def _adopt(self, found: Extensions) -> None:
        wanted = self._wanted(found)
        shared = await self._made(found.interceptors) if wanted else None
        old, self._servers = self._servers, {}
        for name, config in wanted.items():
            if shared is None:
                break
            server = old.get(name)
            if server is not None and server.config == config and server.is_of(shared):
                self._servers[name] = old.pop(name)
            else:
                self._servers[name] = self._started(name, config, shared)
        for server in old.values():
            server.retire()
        self._renew()

    def _wanted(self, found: Extensions) -> dict[str, McpServerConfig]:
        """Return the servers that are switched on and make sense; note what is wrong with the others."""
        wanted: dict[str, McpServerConfig] = {}
        self._faults = {}
        off: list[str] = []
        for name, entry in found.mcp_servers.items():
            if is_disabled(entry):
                off.append(name)
                continue
            try:
                wanted[name] = parse_server(entry, self._environment)
            except McpServerUnusable as error:
                logger.error("the MCP server %.80r is left out: %s", name, error)  # noqa: TRY400
                self._faults[name] = error.user_message
        self._disabled = tuple(off)
        return wanted

    async def _made(self, interceptors: tuple[str, ...]) -> "McpServerFactory | None":
        """Return what all servers share; None when an interceptor cannot be used: then no call goes round it."""
        if self._shared is None or self._shared[0] != interceptors:
            try:
                shared = await anyio.to_thread.run_sync(self._build, interceptors)
            except AgentError as error:
                logger.error("no MCP server is used: %s", error)  # noqa: TRY400
                self._faults["mcpInterceptors"] = error.user_message
                return None
            self._shared = (interceptors, shared)
        return self._shared[1]

    def _build(self, interceptors: tuple[str, ...]) -> "McpServerFactory":
        """Import what MCP needs. Blocking.

        Raises:
            AgentError: An interceptor cannot be used.
        """
        from agent.mcp.server import McpServerFactory, load_certificates  # noqa: PLC0415 - a second, for those who have servers

        return McpServerFactory(
            sessions=self.sessions,
            limits=self._limits,
            certificates=load_certificates(),
            interceptors=tuple(_interceptor(use) for use in interceptors),
        )

    def _started(
        self, name: str, config: McpServerConfig, shared: "McpServerFactory"
    ) -> "McpServer":
        server = shared.create(name, config)
        self._patience = anyio.current_time() + FIRST_S
        self.sessions.start(partial(server.load, self._renew))
        return server

    def _renew(self) -> None:
        """Gather the tools there are; another set is another edition."""
        loaded = sorted(self._servers.values(), key=lambda server: server.name)
        given = {
            (server.name, str((tool.metadata or {}).get("mcp_tool"))): tool
            for server in loaded
            for tool in server.tools
        }
        self._names = unique_names(given)
        tools = tuple(
            tool if tool.name == name else tool.model_copy(update={"name": name})
            for key, name in self._names.items()
            for tool in [given[key]]
        )
        held = self._edition.tools
        if len(tools) != len(held) or any(a is not b for a, b in zip(tools, held, strict=True)):
            self._edition = McpToolSet(version=self._edition.version + 1, tools=tools)


def _interceptor(use: str) -> Any:  # noqa: ANN401 - what stands around a call; its type is the adapter's
    """Return an interceptor: `use` names a function that makes it.

    Raises:
        AgentError: It names no such function.
    """
    builder = import_object(use)
    try:
        made = builder() if callable(builder) else None
    except (TypeError, ValueError) as error:
        raise McpServerUnusable(f"mcpInterceptors: {use} cannot be built") from error
    if not callable(made):
        raise McpServerUnusable(f"mcpInterceptors: {use} makes no interceptor")
    return made


@asynccontextmanager
async def open_mcp(
    extensions: ExtensionsFile, environment: Mapping[str, str], limits: Callable[[], McpConfig]
) -> AsyncIterator[McpToolRegistry]:
    """Open the MCP servers' part of the agent; nothing is connected before tools are asked for."""
    async with anyio.create_task_group() as tasks:
        tools = McpToolRegistry(extensions, environment, limits, tasks)
        try:
            yield tools
        finally:
            with anyio.CancelScope(shield=True):
                await tools.aclose()
            tasks.cancel_scope.cancel()
