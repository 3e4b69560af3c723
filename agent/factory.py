"""The lead agent: gives each run the graph that its options ask for. Nothing below imports this."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from agent.assembly import AgentGraph, Assembly
from agent.config import AgentConfig
from agent.options import RunOptions
from agent.persona import persona_of
from agent.services import AgentServices, AgentSetup, open_agent_services
from agent.spec import NO_OVERRIDES, AgentOverrides, AgentSpec, ConfigRevision

__all__ = [
    "MAX_CACHED_GRAPHS",
    "AgentFactory",
    "AgentGraph",
    "AgentOverrides",
    "open_agent_factory",
]

MAX_CACHED_GRAPHS = 32
"""How many graphs are kept; each holds a model with its connections."""


class AgentFactory:
    """Gives the graph for a run's options; equal options share one.

    Args:
        services: What all runs share.
        checkpointer: Keeps threads; None = the caller's own (LangGraph Server brings one).
        tailoring: What is made of the agent beside the configuration.

    Raises:
        ObjectNotImportable: The configuration names a tool that cannot be used.
    """

    def __init__(
        self,
        systems: AgentServices,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        tailoring: AgentOverrides = NO_OVERRIDES,
    ) -> None:
        self.services = systems
        self._tailoring = tailoring
        self._assembly = Assembly(systems, checkpointer, tailoring)
        self._edition = ConfigRevision.load(systems.config.get())
        self._graphs: OrderedDict[AgentSpec, AgentGraph] = OrderedDict()
        self._building = anyio.Lock()

    async def graph_for(self, config: RunnableConfig) -> AgentGraph:
        """Return the graph for a run.

        The first time a provider's class is asked for, its package is imported, in a worker thread; that takes a
        second or more: see `prepare`. Later graphs take milliseconds, known ones microseconds.

        Raises:
            ModelUnusable: The model's entry cannot be used.
            AgentNotFound, AgentInvalid: The custom agent that is asked for cannot be used.
        """
        options = RunOptions.from_config(config)
        persona = self._tailoring.fitted(await persona_of(self.services, options))
        mcp = await self.services.mcp.current_tools()
        # One edition from here on: a configuration that comes meanwhile is for the next run.
        plan = AgentSpec.resolve(self._edition, options, persona, mcp)
        found = self._graphs.get(plan)
        if found is None:
            async with self._building:
                found = self._graphs.get(plan) or await self._assembly.build(plan)
                self._keep(plan, found)
        else:
            self._graphs.move_to_end(plan)
        return self._traced(found, config, plan.model_name)

    async def warm_up(self) -> None:
        """Build the graph of the default options, so that no run has to wait for imports.

        Raises:
            ModelUnusable: The default model's entry cannot be used.
        """
        await self.graph_for(RunnableConfig())

    async def replace_config(self, config: AgentConfig) -> None:
        """Let runs that start from now on have another configuration; those under way keep theirs.

        Raises:
            ObjectNotImportable: It names a tool that cannot be used; nothing is changed.
        """
        edition = await anyio.to_thread.run_sync(ConfigRevision.load, config)
        self.services.config.replace(config)
        self._edition = edition
        self._graphs.clear()

    def _keep(self, plan: AgentSpec, graph: AgentGraph) -> None:
        if plan.config_revision is not self._edition:
            return
        self._graphs[plan] = graph
        self._graphs.move_to_end(plan)
        if len(self._graphs) > MAX_CACHED_GRAPHS:
            self._graphs.popitem(last=False)

    def _traced(self, graph: AgentGraph, config: RunnableConfig, model_name: str) -> AgentGraph:
        tracing = self.services.tracing
        if not tracing.is_enabled or "thread_id" not in (config.get("configurable") or {}):
            return graph
        return graph.with_config(tracing.run_config(config, model_name))


@asynccontextmanager
async def open_agent_factory(
    site: AgentSetup,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    tailoring: AgentOverrides = NO_OVERRIDES,
) -> AsyncIterator[AgentFactory]:
    """Open the agent with all its systems; leaving closes them. No graph may be run after that.

    Args:
        site: Where it lives.
        checkpointer: Keeps threads; None = the caller's own.
        tailoring: What is made of it beside the configuration.

    Raises:
        AgentError: The configuration names something that cannot be used.
    """
    async with open_agent_services(site) as systems:
        yield await anyio.to_thread.run_sync(AgentFactory, systems, checkpointer, tailoring)
