"""Assembles the lead agent: model, tools, prompt and middleware into a graph. Nothing below imports this.

`recursion_limit` counts the graph's steps, not model calls. This chain adds no nodes, so a model call that
calls tools costs two steps: the 100 that sessions ask for by default are 50 model calls (measured; with one hook
before and one after the model it would be 25).
"""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio.to_thread
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from agent.config import AgentConfig, ModelConfig
from agent.folders import Folders
from agent.middleware import middleware_chain
from agent.models.connections import Connections
from agent.models.factory import create_chat_model
from agent.options import RunOptions
from agent.prompt import system_prompt
from agent.sandbox.choice import build_sandboxes
from agent.sandbox.protocol import Sandboxes
from agent.state import ThreadState
from agent.tools.answers import Limits
from agent.tools.catalog import built_in_tools, configured_tools, without_repeats

logger = logging.getLogger(__name__)

MAX_GRAPHS = 32
"""How many graphs are kept; each holds a model with its connections."""

LeadGraph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeps:
    """What the agent is made of.

    Attributes:
        config: The agent's configuration.
        home: The data folder.
        checkpointer: Keeps threads; None = the caller's own (LangGraph Server brings one).
        sandboxes: Where the agent's files are; None = as configured.
    """

    config: AgentConfig
    home: Path
    checkpointer: BaseCheckpointSaver[Any] | None = None
    sandboxes: Sandboxes | None = None


class LeadAgents:
    """Gives the graph for a run's options; equal options share one.

    An async context manager: leaving it closes the models' connections.
    """

    def __init__(self, deps: AgentDeps) -> None:
        """Resolve the configured tools and the sandbox. Blocking: it imports and looks at folders.

        Raises:
            Unresolvable: The configuration names something that cannot be used.
        """
        self._deps = deps
        self._folders = Folders(deps.home)
        config = deps.config
        sandboxes = deps.sandboxes or build_sandboxes(config.sandbox, self._folders)
        limits = Limits(
            listing=config.sandbox.ls_output_max_chars,
            reading=config.sandbox.read_file_output_max_chars,
            write_bytes=config.sandbox.write_file_max_bytes,
        )
        self._tools = without_repeats(
            (*configured_tools(config.tools), *built_in_tools(sandboxes, limits))
        )
        self._graphs: OrderedDict[RunOptions, LeadGraph] = OrderedDict()
        self._connections = Connections()
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the models' connections; the graphs given out must not be run any more."""
        with self._lock:
            self._graphs.clear()
        await self._connections.aclose()

    def graph(self, config: RunnableConfig) -> LeadGraph:
        """Return the graph for a run.

        The first time a provider's class is asked for, its package is imported, which blocks for a second or more:
        see `prepare`. Later graphs take milliseconds, known ones microseconds.

        Raises:
            ModelUnusable: The model's entry cannot be used.
        """
        options = self._effective(RunOptions.of(config))
        with self._lock:
            graph = self._graphs.get(options)
            if graph is None:
                graph = self._graphs[options] = self._build(options)
                if len(self._graphs) > MAX_GRAPHS:
                    self._graphs.popitem(last=False)
            self._graphs.move_to_end(options)
            return graph

    async def prepare(self) -> None:
        """Build the graph of the default options in a worker thread, so that no run has to wait for imports.

        Raises:
            ModelUnusable: The default model's entry cannot be used.
        """
        await anyio.to_thread.run_sync(self.graph, RunnableConfig())

    def _effective(self, options: RunOptions) -> RunOptions:
        """Reduce options to those that change the graph: what the model cannot do is left out."""
        entry = self._entry(options.model_name)
        if options.thinking_enabled and not entry.supports_thinking:
            logger.debug("%s does not support thinking: it runs without", entry.name)
        return RunOptions(
            model_name=entry.name,
            thinking_enabled=options.thinking_enabled and entry.supports_thinking,
            reasoning_effort=options.reasoning_effort if entry.supports_reasoning_effort else None,
            is_bootstrap=options.is_bootstrap,
        )

    def _entry(self, name: str | None) -> ModelConfig:
        config = self._deps.config
        found = config.model_named(name) if name is not None else None
        if name is not None and found is None:
            logger.warning("there is no model named %.80r: the default is used", name)
        return found or config.chat_models[0]

    def _build(self, options: RunOptions) -> LeadGraph:
        config = self._deps.config
        model = create_chat_model(
            config,
            options.model_name,
            thinking_enabled=options.thinking_enabled,
            reasoning_effort=options.reasoning_effort,
            connections=self._connections,
        )
        return create_agent(
            model,
            self._tools,
            system_prompt=system_prompt(options),
            middleware=middleware_chain(
                folders=self._folders,
                title=config.title,
                title_model=self._title_model(),
            ),
            state_schema=ThreadState,
            checkpointer=self._deps.checkpointer,
        )

    def _title_model(self) -> BaseChatModel | None:
        name = self._deps.config.title.model_name
        if name is None:
            return None
        return create_chat_model(self._deps.config, name, connections=self._connections)


def make_lead_agent(config: RunnableConfig, deps: AgentDeps) -> LeadGraph:
    """Build the lead agent for one run's options. Whoever runs many keeps a `LeadAgents` instead.

    Raises:
        Unresolvable, ModelUnusable: The configuration cannot be used.
    """
    return LeadAgents(deps).graph(config)
