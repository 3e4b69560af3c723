"""AgentSpec: everything that distinguishes one agent graph from another, and the key of the graph cache."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from langchain_core.tools import BaseTool

from agent.config import AgentConfig, ModelConfig
from agent.custom_agents import (
    CustomAgent,
    CustomAgentStore,
    profile_section,
    read_draft,
    soul_section,
)
from agent.errors import AgentInvalid, AgentNotFound
from agent.extensions import Extensions
from agent.guardrails.factory import build_guardrail_provider
from agent.guardrails.protocol import GuardrailProvider
from agent.mcp.instructions import instructions_section
from agent.mcp.registry import McpToolSet
from agent.middleware.subagent_limit import clamp_concurrency
from agent.options import RunOptions
from agent.services import AgentServices
from agent.skills.loader import Skill
from agent.skills.prompt import select_skills, skills_section
from agent.tool_names import matches
from agent.tools.registry import configured_tools

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigRevision:
    """One loaded version of the configuration, with its tools and guardrail. Compared by identity."""

    config: AgentConfig
    tools: tuple[BaseTool, ...]
    guardrail: GuardrailProvider | None

    @classmethod
    def load(cls, config: AgentConfig, services: AgentServices) -> "ConfigRevision":
        """Import the tools and the guardrail that the configuration names. Blocking.

        Raises:
            ObjectNotImportable, GuardrailUnusable: The configuration names something that cannot be used.
        """
        return cls(
            config=config,
            tools=tuple(configured_tools(config.tools, services.for_tools)),
            guardrail=build_guardrail_provider(config.guardrails),
        )

    def model_entry(self, name: str | None) -> ModelConfig:
        """Return the `models` entry with this name, or the default entry if there is none."""
        entry = self.config.model_named(name) if name is not None else None
        if name is not None and entry is None:
            log.warning("Unknown model %.80r: using the default model", name)
        return entry or self.config.chat_models[0]

    def tools_of(self, agent: CustomAgent | None) -> list[BaseTool]:
        """Return the configured tools whose group an agent may use. The lead agent (None) may use all."""
        groups = agent.tool_groups if agent is not None else None
        pairs = zip(self.config.tools, self.tools, strict=True)
        return [tool for entry, tool in pairs if groups is None or matches(entry.group, groups)]

    def supports_vision(self, model_name: str) -> bool:
        """Return whether a model accepts images."""
        entry = self.config.model_named(model_name)
        return entry is not None and entry.supports_vision


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The parts of one agent. Hashable; runs with equal specs share a graph.

    Attributes:
        revision: The configuration.
        options: The run's options, without those that do not affect the graph; `model_name` is always set.
        custom_agent: None = the lead agent.
        callable_agents: The custom agents to which it can delegate.
        skills: The skills listed in the agent's prompt.
        user_profile: The text of USER.md.
        mcp: The tools of MCP servers.
    """

    revision: ConfigRevision
    options: RunOptions
    custom_agent: CustomAgent | None
    callable_agents: tuple[CustomAgent, ...] = ()
    skills: tuple[Skill, ...]
    user_profile: str
    mcp: McpToolSet

    @property
    def config(self) -> AgentConfig:
        """The configuration."""
        return self.revision.config

    @property
    def model_name(self) -> str:
        """The `models` entry the agent uses."""
        return self.options.model_name or ""

    @property
    def supports_vision(self) -> bool:
        """Whether the model accepts images."""
        return self.revision.supports_vision(self.model_name)

    @property
    def configured_tools(self) -> list[BaseTool]:
        """The tools of the configuration whose group the agent may use."""
        return self.revision.tools_of(self.custom_agent)

    @property
    def prompt_sections(self) -> tuple[str, ...]:
        """The sections of the system prompt that describe this agent."""
        soul = soul_section(self.custom_agent) if self.custom_agent is not None else ""
        sections = (
            soul,
            profile_section(self.user_profile),
            skills_section(self.skills),
            instructions_section(self.mcp.instructions),
        )
        return tuple(text for text in sections if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """The files that every agent's spec depends on, besides the configuration.

    Attributes:
        extensions: The extensions file.
        skills: All enabled skills.
        user_profile: The text of USER.md.
    """

    extensions: Extensions
    skills: tuple[Skill, ...]
    user_profile: str


def read_agent_files(services: AgentServices) -> AgentFiles:
    """Read the files. Blocking."""
    extensions = services.extensions.read()
    return AgentFiles(
        extensions=extensions,
        skills=services.skills.load_sync(extensions).enabled,
        user_profile=_load_user_profile(services.custom_agents),
    )


async def load_spec(
    services: AgentServices,
    revision: ConfigRevision,
    options: RunOptions,
    files: AgentFiles,
    available_skills: Collection[str] | None = None,
) -> AgentSpec:
    """Return the spec for a run's options. Options the model does not support are dropped.

    Args:
        services: Provides custom agents and MCP tools.
        revision: The configuration.
        options: The run's options.
        files: The files as they are now.
        available_skills: Names of the skills the agent may use; None = all enabled skills.

    Raises:
        AgentNotFound: The custom agent does not exist. Bootstrap runs may name one that does not exist yet.
        AgentInvalid: The custom agent's files, or the draft, are invalid.
    """
    agent = None
    if options.agent_draft is not None:
        agent = read_draft(options.agent_draft, revision.config)
    elif options.agent_name is not None:
        agent = await anyio.to_thread.run_sync(_load_custom_agent, services.custom_agents, options)
    skills = select_skills(files.skills, agent.skills if agent is not None else None)
    if available_skills is not None:
        skills = tuple(skill for skill in skills if skill.name in available_skills)
    effective = _effective(revision, options, agent.model if agent is not None else None)
    return AgentSpec(
        revision=revision,
        options=effective,
        custom_agent=agent,
        callable_agents=await anyio.to_thread.run_sync(
            _callable_agents, services.custom_agents, options
        )
        if effective.subagent_enabled
        else (),
        skills=skills,
        user_profile=files.user_profile,
        mcp=await services.mcp.current_tools(files.extensions),
    )


def _effective(
    revision: ConfigRevision, options: RunOptions, default_model: str | None
) -> RunOptions:
    entry = revision.model_entry(options.model_name or default_model)
    subagents = revision.config.subagents
    delegation: dict[str, Any] = {}
    if options.subagent_enabled and subagents.enabled:
        requested = options.max_concurrent_subagents or subagents.max_concurrent
        limit = clamp_concurrency(requested)
        delegation = {"subagent_enabled": True, "max_concurrent_subagents": limit}
    return RunOptions(
        model_name=entry.name,
        thinking_enabled=options.thinking_enabled and entry.supports_thinking,
        reasoning_effort=options.reasoning_effort if entry.supports_reasoning_effort else None,
        is_bootstrap=options.is_bootstrap,
        is_chat=options.is_chat,
        is_plan_mode=options.is_plan_mode,
        language=options.language,
        **delegation,
    )


def _load_custom_agent(agents: CustomAgentStore, options: RunOptions) -> CustomAgent | None:
    if options.agent_name is None:
        return None
    try:
        return agents.load(options.agent_name)
    except AgentNotFound:
        if options.is_bootstrap:
            return None
        raise


def _callable_agents(agents: CustomAgentStore, options: RunOptions) -> tuple[CustomAgent, ...]:
    """Return the agents that a person may choose, without the answering agent and those that other people created."""
    allowed = options.allowed_agents
    names = None if allowed is None else {name.lower() for name in allowed}
    own = (options.agent_name or "").lower()
    return tuple(
        agent
        for agent in agents.read_valid()
        if agent.name != own
        and (names is None or agent.name in names)
        and agent.made_by in (None, options.user_id)
    )


def _load_user_profile(agents: CustomAgentStore) -> str:
    try:
        return agents.read_profile()
    except AgentInvalid as error:
        log.warning("Ignoring USER.md: %s", error)
        return ""
