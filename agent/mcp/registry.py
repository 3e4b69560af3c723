"""Registry of the tools of all enabled MCP servers; follows the extensions file.

The MCP SDK is imported with the first configured server: the import takes a second.
"""

import logging
import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from agent.background import background_tasks
from agent.config.mcp import McpConfig
from agent.errors import AgentError, McpServerUnusable
from agent.extensions import Extensions, ExtensionsFile
from agent.importer import import_object
from agent.mcp.pool import McpSessionPool
from agent.mcp.server_config import McpServerConfig, is_disabled, parse_server
from agent.mcp.settings import McpSettings
from agent.mcp.tool_names import tool_name, unique_names
from agent.thread_storage import ThreadStorage
from agent.tool_names import BUILT_IN_TOOLS, WEB_TOOLS

if TYPE_CHECKING:
    from agent.mcp.server import McpServer, McpServerFactory

log = logging.getLogger(__name__)

FIRST_ATTEMPT_S = 10.0
"""After a change, how long runs wait for the first attempt to load new servers, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerInfo:
    """Status of one server.

    Attributes:
        state: `disabled`, `connecting`, `connected` or `failed`.
        tools: The names of its tools in the agent.
        error: Why it failed, for people.
        attempts: Number of loading attempts.
    """

    name: str
    state: str
    tools: tuple[str, ...] = ()
    error: str | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolSet:
    """The tools and instructions of all servers, for an agent.

    Attributes:
        version: Changes whenever the other fields change; 0 = they have always been empty.
        tools: The available tools.
        instructions: The instructions of each server for its use.
    """

    version: int = 0
    tools: tuple[BaseTool, ...] = field(default=(), compare=False)
    instructions: Mapping[str, str] = field(default_factory=dict, compare=False)


class McpToolRegistry:
    """Loads the servers of the extensions file and provides their tools.

    A run keeps the tools that it started with; changed or removed servers stay available until it ends.

    Args:
        extensions: The extensions file.
        environment: Resolves `$NAME` in the file.
        limits: Returns the current `mcp` section.
        tasks: Owns all background work; outlives every run.
        folders: Where images of results are saved.
        configured: Returns the names of the configured tools.
        model: Returns the model for servers in `mcp.sampling`; None = no server may use it.

    Attributes:
        settings: The servers' configuration, for the API.
        sessions: The session pool.
    """

    def __init__(
        self,
        extensions: ExtensionsFile,
        environment: Mapping[str, str],
        limits: Callable[[], McpConfig],
        tasks: TaskGroup,
        folders: ThreadStorage,
        configured: Callable[[], Collection[str]] = frozenset,
        model: Callable[[], Awaitable[BaseChatModel]] | None = None,
    ) -> None:
        self._extensions = extensions
        self._configured = configured
        self._environment = environment
        self._limits = limits
        self._folders = folders
        self._model = model
        self.settings = McpSettings(extensions, environment, limits)
        self.sessions = McpSessionPool(tasks, lambda: limits().max_sessions)
        self._servers: dict[str, McpServer] = {}
        self._faults: dict[str, str] = {}
        self._disabled: tuple[str, ...] = ()
        self._factory: tuple[tuple[str, ...], McpServerFactory] | None = None
        self._signature: str | None = None
        self._tool_set = McpToolSet()
        self._names: Mapping[tuple[str, str], str] = {}
        self._offers: list[tuple[str, bool, tuple[Any, ...]]] = []
        self._shared: tuple[BaseTool, ...] = ()
        self._shared_tools_of: Callable[[Any, ThreadStorage], list[BaseTool]] | None = None
        self._renamed: set[tuple[str, str]] = set()
        self._wait_until = 0.0
        self._lock = anyio.Lock()

    async def current_tools(self, extensions: Extensions | None = None) -> McpToolSet:
        """Return the current tools. Cheap while the file does not change.

        For `FIRST_ATTEMPT_S` after a change, it waits for the first attempt to load each new server. Slower or broken
        servers are loaded in the background; their tools are available to later runs.

        Args:
            extensions: The content of the file; None = read it.
        """
        await self._refresh(extensions)
        await self._wait_for_first_attempts(self._wait_until)
        return self._tool_set

    async def load(self, timeout_s: float) -> tuple[McpServerInfo, ...]:
        """Try to load each server once, and return the status of all."""
        await self._refresh()
        await self._wait_for_first_attempts(anyio.current_time() + timeout_s)
        return await self.statuses()

    async def statuses(self) -> tuple[McpServerInfo, ...]:
        """Return the status of every server in the file, without waiting."""
        await self._refresh()
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
        """Stop loading and close all sessions, within `pool.CLOSE_S`."""
        for server in self._servers.values():
            server.retire()
        await self.sessions.aclose()

    async def _wait_for_first_attempts(self, deadline: float) -> None:
        waiting = [one for one in self._servers.values() if not one.first_attempt_done.is_set()]
        if waiting:
            with anyio.CancelScope(deadline=deadline):
                for server in waiting:
                    await server.first_attempt_done.wait()

    async def _refresh(self, extensions: Extensions | None = None) -> None:
        """Apply the file if it has changed."""
        found = extensions or await self._extensions.load()
        if found.signature == self._signature:
            return
        async with self._lock:
            if found.signature != self._signature:
                await self._apply(found)
                self._signature = found.signature

    async def _apply(self, found: Extensions) -> None:
        wanted = self._wanted(found)
        factory = await self._current_factory(found.interceptors) if wanted else None
        old, self._servers = self._servers, {}
        for name, config in wanted.items():
            if factory is None:
                break
            server = old.get(name)
            if server is not None and server.config == config and server.factory is factory:
                self._servers[name] = old.pop(name)
            else:
                self._servers[name] = self._start(name, config, factory)
        for server in old.values():
            server.retire()
        self._update_tools()

    def _wanted(self, found: Extensions) -> dict[str, McpServerConfig]:
        """Return the enabled servers with a valid configuration. Record an error for each of the others."""
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
                log.error("ignoring MCP server %.80r: %s", name, error)  # noqa: TRY400
                self._faults[name] = error.user_message
        self._disabled = tuple(off)
        return wanted

    async def _current_factory(self, interceptors: tuple[str, ...]) -> "McpServerFactory | None":
        """Return the factory. None if an interceptor is broken, because no call may bypass it."""
        if self._factory is None or self._factory[0] != interceptors:
            try:
                factory = await anyio.to_thread.run_sync(self._build, interceptors)
            except AgentError as error:
                log.error("MCP is off: %s", error)  # noqa: TRY400
                self._faults["mcpInterceptors"] = error.user_message
                return None
            self._factory = (interceptors, factory)
        return self._factory[1]

    def _build(self, interceptors: tuple[str, ...]) -> "McpServerFactory":
        """Import the MCP SDK and build the factory. Blocking.

        Raises:
            AgentError: An interceptor cannot be used.
        """
        from agent.mcp.resources import shared_tools  # noqa: PLC0415 - so does this
        from agent.mcp.server import McpServerFactory, load_certificates  # noqa: PLC0415 - takes a second; only if there are servers

        self._shared_tools_of = shared_tools
        return McpServerFactory(
            sessions=self.sessions,
            limits=self._limits,
            certificates=load_certificates(),
            interceptors=tuple(build_interceptor(use) for use in interceptors),
            folders=self._folders,
            model=self._model,
        )

    def _start(
        self, name: str, config: McpServerConfig, factory: "McpServerFactory"
    ) -> "McpServer":
        server = factory.create(name, config)
        self._wait_until = anyio.current_time() + FIRST_ATTEMPT_S
        self.sessions.start(partial(server.load, self._update_tools))
        return server

    def _update_tools(self) -> None:
        """Collect the loaded tools. Change the version if they have changed."""
        loaded = sorted(self._servers.values(), key=lambda server: server.name)
        given = {
            (server.name, str((tool.metadata or {}).get("mcp_tool"))): tool
            for server in loaded
            for tool in server.tools
        }
        reserved = {*BUILT_IN_TOOLS, *WEB_TOOLS, *self._configured()}
        self._names = unique_names(given, reserved)
        tools = tuple(
            tool if tool.name == name else tool.model_copy(update={"name": name})
            for key, name in self._names.items()
            for tool in [given[key]]
        )
        instructions = {
            server.name: server.instructions for server in loaded if server.instructions
        }
        tools += self._shared_tools(loaded)
        held = self._tool_set
        is_same = len(tools) == len(held.tools) and all(map(operator.is_, tools, held.tools))
        if not is_same or instructions != held.instructions:
            self._tool_set = McpToolSet(
                version=held.version + 1, tools=tools, instructions=instructions
            )
            self._warn_of_renamed(given)

    def _shared_tools(self, loaded: Iterable["McpServer"]) -> tuple[BaseTool, ...]:
        """Return the tools for resources and prompts; the same objects until the servers' offers change."""
        offers = [(one.name, one.has_resources, one.prompts) for one in loaded]
        if offers != self._offers and self._shared_tools_of is not None:
            self._offers = offers
            found = self._shared_tools_of(lambda: self._servers, self._folders)
            self._shared = tuple(found)
        return self._shared

    def _warn_of_renamed(self, given: Iterable[tuple[str, str]]) -> None:
        """Log once which tools were renamed to avoid a name conflict."""
        for server, tool in given:
            name, plain = self._names.get((server, tool)), tool_name(server, tool)
            if name != plain and (server, tool) not in self._renamed:
                self._renamed.add((server, tool))
                log.warning(
                    "MCP server %.80r: its tool %.80r %s, because there is another tool named %s",
                    server,
                    tool,
                    f"is called {name}" if name else "is left out",
                    plain,
                )


def build_interceptor(use: str) -> Any:  # noqa: ANN401 - a ToolCallInterceptor, whose package is imported later
    """Build an interceptor. `use` names the function that returns it.

    Raises:
        AgentError: It cannot be built.
    """
    builder = import_object(use)
    try:
        made = builder() if callable(builder) else None
    except Exception as error:
        raise McpServerUnusable(f"mcpInterceptors: {use} cannot be built") from error
    if not callable(made):
        raise McpServerUnusable(f"mcpInterceptors: {use} does not return a callable")
    return made


@asynccontextmanager
async def open_mcp(
    extensions: ExtensionsFile,
    environment: Mapping[str, str],
    limits: Callable[[], McpConfig],
    folders: ThreadStorage,
    configured: Callable[[], Collection[str]] = frozenset,
    model: Callable[[], Awaitable[BaseChatModel]] | None = None,
) -> AsyncIterator[McpToolRegistry]:
    """Open the MCP registry. It connects to servers when tools are first requested."""
    async with background_tasks() as tasks:
        tools = McpToolRegistry(extensions, environment, limits, tasks, folders, configured, model)
        try:
            yield tools
        finally:
            with anyio.CancelScope(shield=True):
                await tools.aclose()
