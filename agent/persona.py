"""As whom a run works: a custom agent or none, the skills it is told of, and what it knows of its people."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import anyio.to_thread
from langchain_core.tools import BaseTool

from agent.config import ToolConfig
from agent.custom_agents import CustomAgent, CustomAgentStore, profile_section, soul_section
from agent.errors import AgentInvalid, AgentNotFound
from agent.options import RunOptions
from agent.services import AgentServices
from agent.skills.loader import Skill
from agent.skills.prompt import filter_tools, select_skills, skills_section
from agent.skills.registry import SkillRegistry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """As whom a run works. Hashable: a part of the key of the graph cache.

    Attributes:
        agent: The custom agent; None = the lead agent as it is.
        skills: The enabled skills that it is told of.
        profile: What USER.md says.
    """

    agent: CustomAgent | None = None
    skills: tuple[Skill, ...] = ()
    profile: str = ""

    @property
    def model_name(self) -> str | None:
        """Return the model that it has when the run names none."""
        return self.agent.model if self.agent is not None else None

    @property
    def sections(self) -> tuple[str, ...]:
        """Return its sections of the prompt."""
        soul = soul_section(self.agent) if self.agent is not None else ""
        listed = (soul, profile_section(self.profile), skills_section(self.skills))
        return tuple(text for text in listed if text)

    def configured(
        self, entries: Sequence[ToolConfig], tools: Sequence[BaseTool]
    ) -> list[BaseTool]:
        """Return those of the configured tools that it has: its tool groups decide.

        Args:
            entries: The `tools` section.
            tools: What the entries name, in their order.
        """
        groups = self.agent.tool_groups if self.agent is not None else None
        pairs = zip(entries, tools, strict=True)
        return [tool for entry, tool in pairs if groups is None or entry.group in groups]

    def permitted(self, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """Leave the tools that its skills declare, see `guidance.permitted`."""
        return filter_tools(tools, self.skills)


async def persona_of(systems: AgentServices, options: RunOptions) -> Persona:
    """Find as whom a run works.

    Raises:
        AgentNotFound: The run asks for a custom agent that is not there; a bootstrap run may: it sets it up.
        AgentInvalid: Its files are broken.
    """
    return await anyio.to_thread.run_sync(_found, systems.skills, systems.custom_agents, options)


def _found(skills: SkillRegistry, agents: CustomAgentStore, options: RunOptions) -> Persona:
    """Find it; all in one go, because every run waits for it."""
    agent = _agent(agents, options)
    shelf = skills.load_sync()
    wanted = agent.skills if agent is not None else None
    return Persona(
        agent=agent, skills=select_skills(shelf.enabled, wanted), profile=_profile(agents)
    )


def _profile(agents: CustomAgentStore) -> str:
    try:
        return agents.read_profile()
    except AgentInvalid as error:
        logger.warning("USER.md is left out: %s", error)
        return ""


def _agent(agents: CustomAgentStore, options: RunOptions) -> CustomAgent | None:
    if options.agent_name is None:
        return None
    try:
        return agents.load(options.agent_name)
    except AgentNotFound:
        if options.is_bootstrap:
            return None
        raise
