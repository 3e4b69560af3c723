"""AgentFactory: builds a run's graph (model, tools, prompt, middleware), and caches graphs by AgentSpec.

`recursion_limit` counts graph steps, not model calls. Parley's middleware adds no steps, so one model call with its
tools takes two steps. The default limit of 100 allows 50 model calls (measured). One before-model and one after-model
hook would halve this number.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
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

from agent.config import AgentConfig
from agent.config.subagents import INHERIT
from agent.custom_agents import unknown_groups
from agent.middleware.background_commands import BackgroundCommandsMiddleware
from agent.middleware.chain import Middleware, join_middleware
from agent.middleware.chat_context import ChatContextMiddleware
from agent.middleware.citations import CitationsMiddleware
from agent.middleware.clarification import ClarificationMiddleware
from agent.middleware.content_blocks import ContentBlocksMiddleware
from agent.middleware.dangling_tool_calls import DanglingToolCallMiddleware
from agent.middleware.deferred_tools import DeferredToolsMiddleware
from agent.middleware.file_storage import FileStorageMiddleware
from agent.middleware.final_answer import FinalAnswerMiddleware
from agent.middleware.guardrails import guardrail_middleware
from agent.middleware.incomplete_answer import IncompleteAnswerMiddleware
from agent.middleware.llm_retry import LlmRetryMiddleware, fallback_order
from agent.middleware.loop_detection import LoopDetectionMiddleware
from agent.middleware.memory_and_date import MemoryAndDateMiddleware
from agent.middleware.output_budget import ToolOutputBudgetMiddleware
from agent.middleware.prompt_cache import PromptCacheMiddleware
from agent.middleware.sandbox import SandboxMiddleware
from agent.middleware.sanitization import SanitizationMiddleware
from agent.middleware.skill_tools import SkillToolsMiddleware
from agent.middleware.steering import SteeringMiddleware
from agent.middleware.subagent_limit import SubagentLimitMiddleware
from agent.middleware.summarization import SummarizationMiddleware
from agent.middleware.thread_data import ThreadDataMiddleware
from agent.middleware.todo_list import TodoListMiddleware
from agent.middleware.tool_call_repair import ToolCallRepairMiddleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.middleware.tool_schemas import ToolSchemaMiddleware
from agent.middleware.turn_limit import TurnLimitMiddleware
from agent.middleware.uploads import UploadsMiddleware
from agent.middleware.usage_notice import UsageNoticeMiddleware
from agent.middleware.view_image import ViewImageMiddleware
from agent.models.factory import create_chat_model
from agent.options import RunOptions
from agent.prompt import subagent_prompt, system_prompt
from agent.saved_texts import SavedTexts
from agent.services import AgentServices, AgentSetup, open_agent_services
from agent.skills.loader import Skill
from agent.skills.prompt import select_skills, skills_section
from agent.spec import AgentSpec, ConfigRevision, load_spec, read_agent_files
from agent.state import ThreadState
from agent.subagents.subagent_types import (
    SubagentType,
    available_types,
    configured_types,
    custom_agent_type,
)
from agent.subagents.tool import task_tool
from agent.summarizer import SummarizationHook
from agent.titles import TitleWriter
from agent.tool_names import WEB_TOOLS
from agent.tools.bash import BASH
from agent.tools.files import READ_FILE, read_file_tool
from agent.tools.recall import recall_tool
from agent.tools.registry import built_in_tools, deduplicate_tools
from agent.tools.results import ToolLimits
from agent.tools.schedule import schedule_tool
from agent.tools.setup_agent import setup_agent_tool
from agent.tools.tool_search import ToolCatalog, tool_search_tool
from agent.tools.view_image import NAME as VIEW_IMAGE
from agent.tools.view_image import view_image_tool
from agent.unmatched_names import find_unmatched_names
from store.files.mirror import FileMirror

log = logging.getLogger(__name__)

AgentGraph = CompiledStateGraph[Any, Any, Any, Any]

MAX_CACHED_GRAPHS = 32
"""Maximum number of cached graphs. Each holds a model with its connections."""

MAX_LANGUAGES = 10_000
"""Maximum number of conversations for which to remember the prompt's language."""

MAX_SUBAGENT_GRAPHS = 16
"""Maximum number of subagent graphs cached per agent graph. Each different `max_turns` creates one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTools:
    """An agent's tools. `deferred` names the ones that it loads with `tool_search`."""

    tools: tuple[BaseTool, ...]
    deferred: frozenset[str]


class AgentFactory:
    """Builds agent graphs. Runs whose options lead to equal specs share one graph.

    Args:
        services: The services that all runs share.
        checkpointer: Stores threads; None = the caller supplies one later (LangGraph Server does).
        available_skills: Names of the skills the agent may use; None = all enabled skills.
        middleware: The embedding program's middleware; see `join_middleware`.
        revision: The configuration; None = the services' configuration.
        languages: The language of each thread's prompt; None = unknown.

    Raises:
        ObjectNotImportable: The configuration names a tool that cannot be imported.
    """

    def __init__(
        self,
        services: AgentServices,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        *,
        available_skills: Collection[str] | None = None,
        middleware: Sequence[Middleware] = (),
        revision: ConfigRevision | None = None,
        languages: OrderedDict[str, str] | None = None,
    ) -> None:
        self.services = services
        self.checkpointer = checkpointer
        self._available_skills = available_skills
        self._extra_middleware = middleware
        self._revision = revision or ConfigRevision.load(services.config.get(), services)
        self._graphs: OrderedDict[AgentSpec, AgentGraph] = OrderedDict()
        self.languages: OrderedDict[str, str] = OrderedDict() if languages is None else languages
        self._building = anyio.Lock()
        self._warned: set[str] = set()

    async def graph_for(self, config: RunnableConfig) -> AgentGraph:
        """Return the graph for a run.

        The first use of a provider imports its package in a worker thread, which takes a second or more (see
        `warm_up`). Later builds take milliseconds, and cache hits take microseconds.

        Raises:
            ModelUnusable: The model's entry cannot be used.
            AgentNotFound, AgentInvalid: The requested custom agent cannot be used.
            StoreError: The files cannot be copied to this node.
        """
        options = self._with_lasting_language(RunOptions.from_config(config), config)
        await self.services.fetch_files(config)
        # If the configuration changes while we wait, the new one applies to the next run.
        files = await anyio.to_thread.run_sync(read_agent_files, self.services)
        spec = await load_spec(
            self.services, self._revision, options, files, self._available_skills
        )
        graph = self._graphs.get(spec)
        if graph is None:
            async with self._building:
                graph = self._graphs.get(spec) or await self.build(spec)
                self._cache(spec, graph)
        else:
            self._graphs.move_to_end(spec)
        tracing = self.services.tracing
        if tracing.is_enabled and "thread_id" in (config.get("configurable") or {}):
            return graph.with_config(tracing.run_config(config, spec.model_name))
        return graph

    def _with_lasting_language(self, options: RunOptions, config: RunnableConfig) -> RunOptions:
        """Return the options with the language that this process first used in the conversation.

        In a group, people write in several languages. If the prompt changed with them, providers could not cache it.
        """
        thread_id = (config.get("configurable") or {}).get("thread_id")
        if not isinstance(thread_id, str):
            return options
        language = self.languages.pop(thread_id, options.language)
        self.languages[thread_id] = language
        if len(self.languages) > MAX_LANGUAGES:
            self.languages.popitem(last=False)
        return replace(options, language=language)

    @property
    def revision(self) -> ConfigRevision:
        """The configuration for new runs."""
        return self._revision

    async def tools_for(self, config: RunnableConfig) -> "AgentTools":
        """Return the tools that a run with this config would have. Raises the errors of `graph_for`."""
        options = RunOptions.from_config(config)
        files = await anyio.to_thread.run_sync(read_agent_files, self.services)
        spec = await load_spec(
            self.services, self._revision, options, files, self._available_skills
        )
        tools = deduplicate_tools(self._tools(spec))
        own = _SubagentGraphs(self.services, spec, tools).task_tool()
        delegation = [own] if spec.options.subagent_enabled else []
        todos = TodoListMiddleware().tools if spec.options.is_plan_mode else []
        catalog = ToolCatalog.of(tools)
        return AgentTools(
            tools=(*deduplicate_tools([*tools, *delegation, *todos]), *_search_tools(catalog)),
            deferred=frozenset(catalog.tools if catalog is not None else ()),
        )

    async def warm_up(self) -> None:
        """Build the graph for the default options, so that no run waits for imports.

        Raises:
            ModelUnusable: The default model's entry cannot be used.
        """
        await self.graph_for(RunnableConfig())

    async def replace_config(self, config: AgentConfig) -> None:
        """Replace the configuration for runs that start after this call.

        Raises:
            ObjectNotImportable: The configuration names a tool that cannot be imported. Nothing changes.
        """
        revision = await anyio.to_thread.run_sync(ConfigRevision.load, config, self.services)
        self.services.config.replace(config)
        self._revision = revision
        self._graphs.clear()
        self._warned.clear()

    async def build(self, spec: AgentSpec) -> AgentGraph:
        """Compile the graph for a spec, without using the cache.

        Raises:
            ModelUnusable: The model's entry cannot be used.
        """
        options, services = spec.options, self.services
        await self._warn_of_unmatched_names(spec)
        model = await anyio.to_thread.run_sync(self.create_model, spec)
        tools = deduplicate_tools(self._tools(spec))
        names = {tool.name for tool in tools}
        subagents = _SubagentGraphs(services, spec, tools) if options.subagent_enabled else None
        title = spec.config.title
        title_model = title.model_name and await services.auxiliary_models.get(title.model_name)
        catalog = ToolCatalog.of(tools)
        delegation = [subagents.task_tool()] if subagents else []
        return create_agent(
            model,
            [*deduplicate_tools([*tools, *delegation]), *_search_tools(catalog)],
            system_prompt=system_prompt(
                options,
                subagent_types=subagents.types if subagents else (),
                agent_sections=spec.prompt_sections,
                has_bash=BASH in names,
                has_web=not WEB_TOOLS.isdisjoint(names),
            ),
            middleware=self._lead_middleware(
                spec, model, title_model or None, catalog, delegates=subagents is not None
            ),
            state_schema=ThreadState,
            checkpointer=self.checkpointer,
        )

    def _lead_middleware(
        self,
        spec: AgentSpec,
        model: BaseChatModel,
        title_model: BaseChatModel | None,
        catalog: ToolCatalog | None,
        *,
        delegates: bool,
    ) -> list[Middleware]:
        """Return the lead agent's middleware, from the outermost to the innermost.

        The embedding program's middleware comes just outside the last three.

        Raises:
            ValueError: Two of them have the same name.
        """
        services, config, revision = self.services, spec.config, spec.revision
        vision, title = spec.supports_vision, config.title
        concurrency = spec.options.max_concurrent_subagents
        titles = TitleWriter(title, model=title_model) if title.enabled else None
        return join_middleware(
            [
                SteeringMiddleware(),
                FileStorageMiddleware(services.mirror) if services.mirror.is_remote else None,
                ToolOutputBudgetMiddleware(config, _saved_texts(services, config)),
                SanitizationMiddleware(),
                CitationsMiddleware(),
                UsageNoticeMiddleware(services.usage),
                ThreadDataMiddleware(services.folders),
                UploadsMiddleware(services.uploads.snapshot, supports_vision=vision),
                ChatContextMiddleware(spec.options.language),
                SandboxMiddleware(services.sandboxes),
                FinalAnswerMiddleware(services.memory, services.sandboxes, titles),
                DanglingToolCallMiddleware(),
                guardrail_middleware(
                    config.guardrails,
                    revision.guardrail,
                    spec.skills,
                    decisions=services.guardrail_decisions,
                ),
                SkillToolsMiddleware(spec.skills),
                ToolErrorMiddleware(),
                DeferredToolsMiddleware(catalog) if catalog is not None else None,
                _summarization(
                    services, config, model, hooks=(services.memory.before_summarization,)
                ),
                TodoListMiddleware() if spec.options.is_plan_mode else None,
                MemoryAndDateMiddleware(services.memory),
                ViewImageMiddleware(services.folders, services.uploads.images) if vision else None,
                SubagentLimitMiddleware(concurrency, config.subagents.calls_per_message)
                if delegates and concurrency
                else None,
                TurnLimitMiddleware(max_tokens=config.usage.tokens_per_turn),
                *_model_call_middleware(services, spec, spec.model_name, model),
            ],
            self._extra_middleware,
            [
                ClarificationMiddleware(),
                ToolSchemaMiddleware(),
                PromptCacheMiddleware(),
                BackgroundCommandsMiddleware(services.background),
            ],
        )

    async def _warn_of_unmatched_names(self, spec: AgentSpec) -> None:
        """Log names in tool lists that match no tool, once each: operators use these lists to restrict the agent."""
        agent = spec.custom_agent
        groups = unknown_groups(spec.config, (agent.tool_groups or ()) if agent is not None else ())
        statuses = await self.services.mcp.statuses()
        unmatched = find_unmatched_names(
            spec.config,
            [tool.name for tool in (*spec.revision.tools, *spec.mcp.tools)],
            [server.name for server in statuses if server.state != "connected"],
        )
        found = [str(one) for one in unmatched]
        found += [f"tool_groups: there is no tool group {group!r}" for group in groups]
        for line in found:
            if line not in self._warned:
                self._warned.add(line)
                log.warning("%.500s", line)

    def create_model(self, spec: AgentSpec) -> BaseChatModel:
        """Build the model of a spec. Blocking. Raises ModelUnusable."""
        return create_chat_model(
            spec.config,
            spec.model_name,
            thinking_enabled=spec.options.thinking_enabled,
            reasoning_effort=spec.options.reasoning_effort,
            http_client=self.services.model_http_client,
            usage=self.services.usage,
        )

    def _tools(self, spec: AgentSpec) -> list[BaseTool]:
        """Return the agent's tools. Of several with the same name, the first one wins."""
        services = self.services
        limits, converter = _tool_limits(spec.config), services.for_tools.converter
        images = services.folders if spec.supports_vision else None
        return [
            *spec.configured_tools,
            *built_in_tools(
                services.sandboxes,
                limits,
                background=services.background,
                converter=converter,
                images=images,
            ),
            *([view_image_tool(services.folders)] if spec.supports_vision else ()),
            *([recall_tool(services.memory)] if services.memory.can_search else ()),
            *(
                [schedule_tool(services.schedules)]
                if services.schedules is not None and spec.options.is_chat
                else ()
            ),
            *([setup_agent_tool(services.custom_agents)] if spec.options.is_bootstrap else ()),
            *spec.mcp.tools,
            *services.acp_agents.tools(spec.config.acp_agents),
        ]

    def _cache(self, spec: AgentSpec, graph: AgentGraph) -> None:
        if spec.revision is not self._revision:
            return
        self._graphs[spec] = graph
        self._graphs.move_to_end(spec)
        if len(self._graphs) > MAX_CACHED_GRAPHS:
            self._graphs.popitem(last=False)


class _SubagentGraphs:
    """The graphs of one agent's subagents. Each is built when it is first needed."""

    def __init__(
        self, services: AgentServices, parent: AgentSpec, tools: Sequence[BaseTool]
    ) -> None:
        self._services = services
        self._parent = parent
        self._tools = tools
        self._graphs: dict[SubagentType, AgentGraph] = {}
        self._building = anyio.Lock()
        section = parent.config.subagents
        kinds = configured_types(section)
        for agent in parent.callable_agents:
            own = {tool.name for tool in parent.revision.tools_of(agent)}
            excluded = [tool.name for tool in parent.revision.tools if tool.name not in own]
            kinds.setdefault(agent.name, custom_agent_type(agent, section, excluded))
        self.types = available_types(kinds, tools)

    def task_tool(self) -> BaseTool:
        """Return the `task` tool."""
        budget = self._parent.config.subagents.calls_per_message
        return task_tool(self._services.subagents, self.types, self._graph_for, budget=budget)

    async def _graph_for(self, kind: SubagentType) -> AgentGraph:
        """Return the graph of a subagent type. Raises AgentError if its model cannot be used."""
        async with self._building:
            if kind not in self._graphs:
                if len(self._graphs) >= MAX_SUBAGENT_GRAPHS:
                    self._graphs.clear()
                self._graphs[kind] = await self._build(kind)
            return self._graphs[kind]

    async def _build(self, kind: SubagentType) -> AgentGraph:
        parent, services = self._parent, self._services
        model_name = parent.model_name if kind.model == INHERIT else kind.model
        skills = select_skills(parent.skills, kind.skills)
        tools = kind.select_tools(self._tools)
        has_vision = parent.revision.supports_vision(model_name)
        http_client = services.model_http_client
        model = await anyio.to_thread.run_sync(
            lambda: create_chat_model(
                parent.config, model_name, http_client=http_client, usage=services.usage
            )
        )
        catalog = ToolCatalog.of(tools)
        return create_agent(
            model,
            [
                *(tools if has_vision else self._without_vision(tools)),
                *_search_tools(catalog),
            ],
            system_prompt=subagent_prompt(kind.system_prompt, skills_section(skills)),
            middleware=self._middleware(kind, model_name, model, skills, catalog),
            state_schema=ThreadState,
            checkpointer=False,
        )

    def _without_vision(self, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """Return the tools for a model that sees no images."""
        services = self._services
        limits = _tool_limits(self._parent.config)
        blind = read_file_tool(services.sandboxes, limits, services.for_tools.converter, None)
        return [
            blind if tool.name == READ_FILE else tool for tool in tools if tool.name != VIEW_IMAGE
        ]

    def _middleware(
        self,
        kind: SubagentType,
        model_name: str,
        model: BaseChatModel,
        skills: Sequence[Skill],
        catalog: ToolCatalog | None,
    ) -> list[Middleware]:
        """Return a subagent's middleware, from the outermost to the innermost.

        It lacks SandboxMiddleware, because the parent still works in the sandbox, and FinalAnswerMiddleware.
        """
        parent, services = self._parent, self._services
        config, revision = parent.config, parent.revision
        vision = revision.supports_vision(model_name)
        return join_middleware(
            [
                ToolOutputBudgetMiddleware(config, _saved_texts(services, config)),
                SanitizationMiddleware(),
                CitationsMiddleware(),
                ThreadDataMiddleware(services.folders),
                DanglingToolCallMiddleware(),
                guardrail_middleware(
                    config.guardrails,
                    revision.guardrail,
                    skills,
                    is_subagent=True,
                    decisions=services.guardrail_decisions,
                ),
                SkillToolsMiddleware(skills),
                ToolErrorMiddleware(),
                DeferredToolsMiddleware(catalog) if catalog is not None else None,
                _summarization(services, config, model),
                ViewImageMiddleware(services.folders, services.uploads.images) if vision else None,
                TurnLimitMiddleware(kind.max_turns, config.usage.tokens_per_subagent),
                *_model_call_middleware(services, parent, model_name, model),
                ToolSchemaMiddleware(),
                PromptCacheMiddleware(),
            ]
        )


def _search_tools(catalog: ToolCatalog | None) -> list[BaseTool]:
    return [] if catalog is None else [tool_search_tool(catalog)]


def _tool_limits(config: AgentConfig) -> ToolLimits:
    sandbox = config.sandbox
    return ToolLimits(
        reading_chars=sandbox.read_file_output_max_chars,
        write_bytes=sandbox.write_file_max_bytes,
        command_timeout_s=sandbox.bash_command_timeout,
    )


def _model_call_middleware(
    services: AgentServices, spec: AgentSpec, model_name: str, model: BaseChatModel
) -> tuple[Middleware | None, ...]:
    """Return the middleware closest to a model call, the same for the lead agent and for subagents."""
    config = spec.config
    vision = spec.revision.supports_vision(model_name)
    return (
        LoopDetectionMiddleware(config.loop_detection) if config.loop_detection.enabled else None,
        IncompleteAnswerMiddleware(safety=config.safety_finish_reason.enabled),
        ToolCallRepairMiddleware(),
        LlmRetryMiddleware(
            config.llm_retry,
            names=fallback_order(config, model_name),
            models=services.auxiliary_models.get,
            breakers=services.circuit_breakers,
        ),
        ContentBlocksMiddleware(config, model, supports_vision=vision),
    )


def _saved_texts(
    services: AgentServices, config: AgentConfig, mirror: FileMirror | None = None
) -> SavedTexts:
    return SavedTexts(services.sandboxes, config.sandbox.disk_quota_mb, mirror)


def _summarization(
    services: AgentServices,
    config: AgentConfig,
    model: BaseChatModel,
    hooks: Sequence[SummarizationHook] = (),
) -> SummarizationMiddleware | None:
    """Return the middleware that summarizes long threads; None = disabled."""
    if not config.summarization.enabled:
        return None
    return SummarizationMiddleware(
        config.summarization,
        model=model,
        summarizer=services.summarizer,
        texts=_saved_texts(services, config, services.mirror),
        skills=config.skills.container_path,
        hooks=hooks,
    )


@asynccontextmanager
async def open_agent_factory(
    setup: AgentSetup,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    *,
    available_skills: Collection[str] | None = None,
    middleware: Sequence[Middleware] = (),
) -> AsyncIterator[AgentFactory]:
    """Open the agent's services and yield a factory. No graph may run after the block. Args: see `AgentFactory`.

    Raises:
        AgentError: The configuration names something that cannot be used.
    """
    async with open_agent_services(setup) as services:
        yield await anyio.to_thread.run_sync(
            lambda: AgentFactory(
                services, checkpointer, available_skills=available_skills, middleware=middleware
            )
        )
