"""Assembles the lead agent: model, tools, prompt and middleware into a graph. Nothing below imports this.

`recursion_limit` counts the graph's steps, not model calls. This chain adds no nodes, so a model call that
calls tools costs two steps: the 100 that sessions ask for by default are 50 model calls (measured; with one hook
before and one after the model it would be 25).
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import anyio.to_thread
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from agent.config import AgentConfig, ModelConfig
from agent.delegation import Delegation, Principal
from agent.guardrails.choice import build_provider
from agent.guardrails.protocol import GuardrailProvider
from agent.mcp.tools import McpEdition
from agent.middleware import Middleware, chain
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.guardrails import guardrail_link
from agent.middleware.memory import MemoryMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.middleware.steering import Steering
from agent.middleware.subagent_limit import MOST_AT_ONCE, SubagentLimitMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.title import TitleMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.uploads import UploadsMiddleware
from agent.middleware.view_image import ViewImageMiddleware
from agent.models.factory import create_chat_model
from agent.options import RunOptions
from agent.persona import Persona, persona_of
from agent.prompt import system_prompt
from agent.state import ThreadState
from agent.systems import Site, Systems, open_systems
from agent.tools.answers import Limits
from agent.tools.catalog import built_in_tools, configured_tools, without_repeats
from agent.tools.images import view_image_tool
from agent.tools.setup import setup_agent_tool
from agent.tools.shell import BASH, ShellLimits

logger = logging.getLogger(__name__)

MAX_GRAPHS = 32
"""How many graphs are kept; each holds a model with its connections."""

LeadGraph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Everything that makes one graph differ from another; equal ones share it.

    Attributes:
        options: The run's options, reduced to what changes the graph.
        persona: As whom it works.
        mcp: The tools of MCP servers.
    """

    options: RunOptions
    persona: Persona
    mcp: McpEdition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edition:
    """One state of the configuration, with the tools and the guardrail that it names."""

    config: AgentConfig
    tools: tuple[BaseTool, ...]
    guardrail: GuardrailProvider | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailoring:
    """What whoever opens the agent makes of it, beside the configuration.

    Attributes:
        skills: The only skills that it is told of; None = all that are enabled.
        middlewares: Stand inside ours, see `chain`.
    """

    skills: frozenset[str] | None = None
    middlewares: tuple[Middleware, ...] = ()

    def fitted(self, persona: Persona) -> Persona:
        """Leave a persona the skills that it may have."""
        if self.skills is None:
            return persona
        kept = tuple(skill for skill in persona.skills if skill.name in self.skills)
        return replace(persona, skills=kept)


class LeadAgents:
    """Gives the graph for a run's options; equal options share one.

    Args:
        systems: What all runs share.
        checkpointer: Keeps threads; None = the caller's own (LangGraph Server brings one).
        tailoring: What is made of the agent beside the configuration.

    Raises:
        Unresolvable: The configuration names a tool that cannot be used.
    """

    def __init__(
        self,
        systems: Systems,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        tailoring: Tailoring = Tailoring(),
    ) -> None:
        self.systems = systems
        self._tailoring = tailoring
        self._checkpointer = checkpointer
        self._edition = _edition_of(systems.settings.now())
        self._graphs: OrderedDict[_Wanted, LeadGraph] = OrderedDict()
        self._building = anyio.Lock()

    async def graph(self, config: RunnableConfig) -> LeadGraph:
        """Return the graph for a run.

        The first time a provider's class is asked for, its package is imported, in a worker thread; that takes a
        second or more: see `prepare`. Later graphs take milliseconds, known ones microseconds.

        Raises:
            ModelUnusable: The model's entry cannot be used.
            AgentNotFound, AgentInvalid: The custom agent that is asked for cannot be used.
        """
        options = RunOptions.of(config)
        persona = self._tailoring.fitted(await persona_of(self.systems, options))
        mcp = await self.systems.mcp.current()
        wanted = _Wanted(options=self._effective(options, persona), persona=persona, mcp=mcp)
        found = self._graphs.get(wanted)
        if found is None:
            async with self._building:
                found = self._graphs.get(wanted)
                if found is None:
                    found = await self._add(wanted)
        self._graphs.move_to_end(wanted)
        return self._traced(found, config, wanted.options.model_name or "")

    def _traced(self, graph: LeadGraph, config: RunnableConfig, model_name: str) -> LeadGraph:
        tracing = self.systems.tracing
        if not tracing.is_on or "thread_id" not in (config.get("configurable") or {}):
            return graph
        return graph.with_config(tracing.config_of(config, model_name))

    async def prepare(self) -> None:
        """Build the graph of the default options, so that no run has to wait for imports.

        Raises:
            ModelUnusable: The default model's entry cannot be used.
        """
        await self.graph(RunnableConfig())

    async def replace(self, config: AgentConfig) -> None:
        """Let runs that start from now on have another configuration; those under way keep theirs.

        Raises:
            Unresolvable: It names a tool that cannot be used; nothing is changed.
        """
        edition = await anyio.to_thread.run_sync(_edition_of, config)
        async with self._building:
            self.systems.settings.replace(config)
            self._edition = edition
            self._graphs.clear()

    async def _add(self, wanted: _Wanted) -> LeadGraph:
        edition = self._edition
        model = await anyio.to_thread.run_sync(self._model, edition.config, wanted.options)
        tools = without_repeats(self._tools(edition, wanted))
        at_once = wanted.options.max_concurrent_subagents
        delegation = self._delegation(edition, wanted, tools) if at_once else None
        graph = create_agent(
            model,
            tools if delegation is None else without_repeats([*tools, delegation.tool()]),
            system_prompt=system_prompt(
                wanted.options,
                kinds=delegation.kinds if delegation else (),
                further=wanted.persona.sections,
                has_bash=any(tool.name == BASH for tool in tools),
            ),
            middleware=chain(
                *await self._middleware(edition),
                *self._file_links(edition, wanted.options),
                *self._steering(edition, wanted.options, model),
                SubagentLimitMiddleware(at_once) if at_once else None,
                further=self._tailoring.middlewares,
            ),
            state_schema=ThreadState,
            checkpointer=self._checkpointer,
        )
        self._graphs[wanted] = graph
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        return graph

    def _effective(self, options: RunOptions, persona: Persona) -> RunOptions:
        """Reduce options to those that change the graph: what the model cannot do is left out."""
        entry = self._entry(options.model_name or persona.model_name)
        if options.thinking_enabled and not entry.supports_thinking:
            logger.debug("%s does not support thinking: it runs without", entry.name)
        return RunOptions(
            model_name=entry.name,
            thinking_enabled=options.thinking_enabled and entry.supports_thinking,
            reasoning_effort=options.reasoning_effort if entry.supports_reasoning_effort else None,
            is_bootstrap=options.is_bootstrap,
            is_plan_mode=options.is_plan_mode,
            **self._delegating(options),
        )

    def _delegating(self, options: RunOptions) -> dict[str, Any]:
        section = self._edition.config.subagents
        if not (options.subagent_enabled and section.enabled):
            return {}
        at_once = min(options.max_concurrent_subagents or section.max_concurrent, MOST_AT_ONCE)
        return {"subagent_enabled": True, "max_concurrent_subagents": at_once}

    def _delegation(
        self, edition: _Edition, wanted: _Wanted, tools: Sequence[BaseTool]
    ) -> Delegation:
        principal = Principal(
            config=edition.config,
            model_name=wanted.options.model_name or "",
            tools=tools,
            skills=wanted.persona.skills,
            guardrail=edition.guardrail,
        )
        return Delegation(self.systems, principal)

    def _entry(self, name: str | None) -> ModelConfig:
        config = self._edition.config
        found = config.model_named(name) if name is not None else None
        if name is not None and found is None:
            logger.warning("there is no model named %.80r: the default is used", name)
        return found or config.chat_models[0]

    def _model(self, config: AgentConfig, options: RunOptions) -> BaseChatModel:
        return create_chat_model(
            config,
            options.model_name,
            thinking_enabled=options.thinking_enabled,
            reasoning_effort=options.reasoning_effort,
            connections=self.systems.connections,
        )

    def _tools(self, edition: _Edition, wanted: _Wanted) -> list[BaseTool]:
        """Return all tools of one graph; where a name stands twice, the first holds."""
        sandbox = edition.config.sandbox
        limits = Limits(
            listing=sandbox.ls_output_max_chars,
            reading=sandbox.read_file_output_max_chars,
            write_bytes=sandbox.write_file_max_bytes,
        )
        shell = ShellLimits(
            timeout_s=sandbox.bash_command_timeout, output_chars=sandbox.bash_output_max_chars
        )
        return wanted.persona.permitted(
            [
                *wanted.persona.configured(edition.config.tools, edition.tools),
                *built_in_tools(self.systems.sandboxes, limits, shell),
                *(
                    [view_image_tool(self.systems.folders)]
                    if _sees(edition, wanted.options)
                    else ()
                ),
                *([setup_agent_tool(self.systems.agents)] if wanted.options.is_bootstrap else ()),
                *wanted.mcp.tools,
                *self.systems.acp.tools(edition.config.acp_agents),
            ]
        )

    def _steering(
        self, edition: _Edition, options: RunOptions, model: BaseChatModel
    ) -> list[Middleware | None]:
        systems = self.systems
        steering = Steering(
            models=systems.models.get, breakers=systems.breakers, sandboxes=systems.sandboxes
        )
        return steering.links_of_lead(
            edition.config,
            options.model_name or "",
            model,
            is_plan_mode=options.is_plan_mode,
            before_summarization=[systems.memory.before_summarization],
        )

    def _file_links(self, edition: _Edition, options: RunOptions) -> list[Middleware | None]:
        sees = _sees(edition, options)
        return [
            UploadsMiddleware(self.systems.uploads.views, sees=sees),
            ViewImageMiddleware(self.systems.folders) if sees else None,
        ]

    async def _middleware(self, edition: _Edition) -> list[Middleware | None]:
        config = edition.config
        title = config.title
        title_model = await self.systems.models.get(title.model_name) if title.model_name else None
        return [
            ThreadDataMiddleware(self.systems.folders),
            SandboxMiddleware(self.systems.sandboxes),
            DanglingToolCallMiddleware(),
            guardrail_link(config.guardrails, edition.guardrail),
            ToolErrorMiddleware(),
            TitleMiddleware(title, model=title_model) if title.enabled else None,
            MemoryMiddleware(self.systems.memory),
            ClarificationMiddleware(),
        ]


def _sees(edition: _Edition, options: RunOptions) -> bool:
    entry = edition.config.model_named(options.model_name or "")
    return entry is not None and entry.supports_vision


def _edition_of(config: AgentConfig) -> _Edition:
    return _Edition(
        config=config,
        tools=tuple(configured_tools(config.tools)),
        guardrail=build_provider(config.guardrails),
    )


@asynccontextmanager
async def open_agents(
    site: Site,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    tailoring: Tailoring = Tailoring(),
) -> AsyncIterator[LeadAgents]:
    """Open the agent with all its systems; leaving closes them. No graph may be run after that.

    Args:
        site: Where it lives.
        checkpointer: Keeps threads; None = the caller's own.
        tailoring: What is made of it beside the configuration.

    Raises:
        AgentError: The configuration names something that cannot be used.
    """
    async with open_systems(site) as systems:
        yield await anyio.to_thread.run_sync(LeadAgents, systems, checkpointer, tailoring)
