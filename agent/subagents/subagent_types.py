"""Subagent types: built-in, configured, and overridden by the configuration. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from agent.config import SubagentsConfig
from agent.config.subagents import INHERIT, CustomSubagentConfig
from agent.custom_agents import CustomAgent, soul_section
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE
from agent.subagents.status import TASK
from agent.tool_names import is_allowed, matches
from agent.tools.bash import BASH

DESCRIPTION_CHARS = 300
"""Maximum length of a custom agent's description for the lead agent, characters."""

EXCLUDED_TOOLS = frozenset({TASK, "ask_clarification", "present_files", "setup_agent"})
"""Tools that no subagent gets, because it cannot delegate and reports only to the lead agent, not to users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentType:
    """One type of subagent.

    Attributes:
        name: The value of `subagent_type`.
        description: When to delegate to it.
        system_prompt: Its system prompt.
        tools: Names and patterns of its tools; None = all of the lead agent's.
        disallowed_tools: Names and patterns of tools to exclude.
        skills: Names of its skills; None = all, () = none.
        model: An entry of `models`, or `INHERIT`.
        max_turns: Maximum number of calls of its model.
        timeout_seconds: Its time limit, seconds.
    """

    name: str
    description: str
    system_prompt: str
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = (TASK,)
    skills: tuple[str, ...] | None = None
    model: str = INHERIT
    max_turns: int = 50
    timeout_seconds: float = 900.0

    def select_tools(self, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """Return the lead agent's tools that this type gets."""
        refused = EXCLUDED_TOOLS.union(self.disallowed_tools)
        return [
            tool
            for tool in tools
            if not matches(tool.name, refused)
            and (self.tools is None or is_allowed(tool.name, self.tools))
        ]


_INSTRUCTIONS = f"""\
The lead agent gave you one task. Nobody else reads what you write, and nobody can answer questions. If something is \
unclear, choose what serves the task best and say so. Work until the task is done, then report in one final message: \
the result, what you found or made, the full paths of files, and what is uncertain or missing. No preamble.
You share the conversation's files: work in {WORKSPACE}; {UPLOADS} holds files from the user (read-only); save files \
for the user in {OUTPUTS}, and the lead agent will deliver them."""

GENERAL_PURPOSE = SubagentType(
    name="general-purpose",
    description=(
        "Multi-step work that can be described in one message: research across many sources, reading many files, "
        "comparisons, one part of a larger document. Has the lead agent's tools."
    ),
    system_prompt=f"You are a capable assistant working independently.\n{_INSTRUCTIONS}",
    disallowed_tools=(TASK, "ask_clarification", "present_files"),
    max_turns=100,
)

BASH_SUBAGENT = SubagentType(
    name=BASH,
    description=(
        "Runs commands and reports the results: builds, tests, conversions, and data processing with long output "
        "that the conversation does not need."
    ),
    system_prompt=(
        "You run commands in the conversation's sandbox. Run one step at a time, check exit codes and errors, "
        f"and summarize output instead of repeating it.\n{_INSTRUCTIONS}"
    ),
    tools=(BASH, "ls", "read_file", "write_file", "str_replace"),
    disallowed_tools=(TASK, "ask_clarification", "present_files"),
    max_turns=60,
)

BUILT_IN = (GENERAL_PURPOSE, BASH_SUBAGENT)


def configured_types(config: SubagentsConfig) -> dict[str, SubagentType]:
    """Return all types by name.

    A custom type replaces a built-in one with the same name. The section's own `timeout_seconds` and `max_turns` apply
    to built-in types only; overrides in `agents` apply to any type.

    >>> list(configured_types(SubagentsConfig()))
    ['general-purpose', 'bash']
    """
    kinds = {kind.name: _with_defaults(kind, config) for kind in BUILT_IN}
    kinds |= {name: _from_config(name, entry) for name, entry in config.custom_agents.items()}
    for name, override in config.agents.items():
        if name in kinds:
            kinds[name] = _override(kinds[name], override.model_dump())
    return kinds


def custom_agent_type(
    agent: CustomAgent, config: SubagentsConfig, excluded_tools: Sequence[str]
) -> SubagentType:
    """Return the type for a custom agent. It has the agent's soul, model and skills, and the lead agent's tools.

    Args:
        agent: The agent.
        config: The `subagents` section, with the time limit and maximum turns.
        excluded_tools: The names of tools outside the agent's groups.
    """
    description = " ".join(agent.description.split())[:DESCRIPTION_CHARS]
    return SubagentType(
        name=agent.name,
        description=description or f"The custom agent {agent.name}.",
        system_prompt="\n\n".join(filter(None, (soul_section(agent), _INSTRUCTIONS))),
        disallowed_tools=(TASK, *excluded_tools),
        skills=agent.skills,
        model=agent.model or INHERIT,
        max_turns=config.max_turns or GENERAL_PURPOSE.max_turns,
        timeout_seconds=config.timeout_seconds,
    )


def available_types(
    kinds: Mapping[str, SubagentType], tools: Sequence[BaseTool]
) -> dict[str, SubagentType]:
    """Return the types that work with the lead agent's tools. `bash` needs the tool of the same name."""
    can_execute = any(tool.name == BASH for tool in tools)
    return {name: kind for name, kind in kinds.items() if name != BASH or can_execute}


def _with_defaults(kind: SubagentType, config: SubagentsConfig) -> SubagentType:
    return dataclasses.replace(
        kind,
        timeout_seconds=config.timeout_seconds,
        max_turns=config.max_turns or kind.max_turns,
    )


def _from_config(name: str, entry: CustomSubagentConfig) -> SubagentType:
    return SubagentType(
        name=name,
        description=entry.description,
        system_prompt=f"{entry.system_prompt.rstrip()}\n\n{_INSTRUCTIONS}",
        tools=None if entry.tools is None else tuple(entry.tools),
        disallowed_tools=tuple(entry.disallowed_tools),
        skills=None if entry.skills is None else tuple(entry.skills),
        model=entry.model,
        max_turns=entry.max_turns,
        timeout_seconds=entry.timeout_seconds,
    )


def _override(kind: SubagentType, override: Mapping[str, Any]) -> SubagentType:
    known = {field.name for field in dataclasses.fields(SubagentType)}
    given = {key: value for key, value in override.items() if key in known and value is not None}
    if "skills" in given:
        given["skills"] = tuple(given["skills"])
    return dataclasses.replace(kind, **given)
