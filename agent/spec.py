"""What makes one lead agent differ from another: the configuration's edition, the run's options, persona and tools."""

import logging
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.tools import BaseTool

from agent.config import AgentConfig, ModelConfig
from agent.guardrails.factory import build_guardrail_provider
from agent.guardrails.protocol import GuardrailProvider
from agent.mcp.registry import McpToolSet
from agent.middleware import Middleware
from agent.middleware.subagent_limit import MAX_CONCURRENT
from agent.options import RunOptions
from agent.persona import Persona
from agent.tools.registry import configured_tools

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigRevision:
    """One state of the configuration, with the tools and the guardrail that it names. Each is itself alone."""

    config: AgentConfig
    configured_tools: tuple[BaseTool, ...]
    guardrail: GuardrailProvider | None

    @classmethod
    def load(cls, config: AgentConfig) -> "ConfigRevision":
        """Resolve what the configuration names. Blocking: it imports.

        Raises:
            ObjectNotImportable, GuardrailUnusable: It names something that cannot be used.
        """
        return cls(
            config=config,
            configured_tools=tuple(configured_tools(config.tools)),
            guardrail=build_guardrail_provider(config.guardrails),
        )

    def model_entry(self, name: str | None) -> ModelConfig:
        """Return the model's entry of this name; the default one for None, and for a name that is not there."""
        found = self.config.model_named(name) if name is not None else None
        if name is not None and found is None:
            logger.warning("there is no model named %.80r: the default is used", name)
        return found or self.config.chat_models[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOverrides:
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


NO_OVERRIDES = AgentOverrides()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """Everything that makes one graph differ from another; equal ones share it.

    Attributes:
        config_revision: The configuration.
        options: The run's options, reduced to what changes the graph.
        persona: As whom it works.
        mcp: The tools of MCP servers.
    """

    config_revision: ConfigRevision
    options: RunOptions
    persona: Persona
    mcp: McpToolSet

    @classmethod
    def resolve(
        cls, edition: ConfigRevision, options: RunOptions, persona: Persona, mcp: McpToolSet
    ) -> "AgentSpec":
        """Draw it; what the model cannot do is left out."""
        entry = edition.model_entry(options.model_name or persona.model_name)
        if options.thinking_enabled and not entry.supports_thinking:
            logger.debug("%s does not support thinking: it runs without", entry.name)
        effective = RunOptions(
            model_name=entry.name,
            thinking_enabled=options.thinking_enabled and entry.supports_thinking,
            reasoning_effort=options.reasoning_effort if entry.supports_reasoning_effort else None,
            is_bootstrap=options.is_bootstrap,
            is_plan_mode=options.is_plan_mode,
            **_delegating(edition, options),
        )
        return cls(config_revision=edition, options=effective, persona=persona, mcp=mcp)

    @property
    def model_name(self) -> str:
        """Return the model's name."""
        return self.options.model_name or ""

    @property
    def supports_vision(self) -> bool:
        """Return whether the model takes images."""
        entry = self.config_revision.config.model_named(self.model_name)
        return entry is not None and entry.supports_vision


def _delegating(edition: ConfigRevision, options: RunOptions) -> dict[str, Any]:
    section = edition.config.subagents
    if not (options.subagent_enabled and section.enabled):
        return {}
    at_once = min(options.max_concurrent_subagents or section.max_concurrent, MAX_CONCURRENT)
    return {"subagent_enabled": True, "max_concurrent_subagents": at_once}
