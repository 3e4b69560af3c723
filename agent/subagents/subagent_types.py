"""Subagent types: built-in, configured, and overridden by the configuration. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from agent.config import SubagentsConfig
from agent.config.subagents import INHERIT, CustomSubagentConfig
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE
from agent.subagents.status import TASK
from agent.tools.bash import BASH

EXCLUDED_TOOLS = frozenset({TASK, "ask_clarification", "present_files", "setup_agent"})
"""Tools that no subagent gets: it does not delegate further, and it speaks to the lead agent, not to people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentType:
    """One kind of subagent.

    Attributes:
        name: What `subagent_type` says.
        description: When to delegate to it.
        system_prompt: Who it is and how it works.
        tools: Names of the tools it may use; None = all that the lead agent has.
        disallowed_tools: Names that are taken away again.
        skills: Which skills it knows; None = all, () = none.
        model: An entry of `models`, or `INHERIT`.
        max_turns: How many times its model may be called.
        timeout_seconds: Its deadline, seconds.
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
        """Return those of the lead agent's tools that this kind gets."""
        refused = EXCLUDED_TOOLS.union(self.disallowed_tools)
        allowed = None if self.tools is None else set(self.tools)
        return [
            tool
            for tool in tools
            if tool.name not in refused and (allowed is None or tool.name in allowed)
        ]


_INSTRUCTIONS = f"""\
You were given one task by the lead agent; nobody else reads what you write, and nobody can answer questions. Decide \
what is unclear by what serves the task best and say so. Work until it is done, then give your result as one final \
message: what was asked for, what you found or made, the full paths of files, and what is uncertain or missing. No \
preamble.
The conversation's files are yours too: {WORKSPACE} to work in, {UPLOADS} for what people sent (read only), {OUTPUTS} \
for what people shall receive; the lead agent hands those over."""

GENERAL_PURPOSE = SubagentType(
    name="general-purpose",
    description=(
        "Work of several steps that can be described in one message: research over many sources, reading many "
        "files, comparing, writing a part of something larger. Has the lead agent's tools."
    ),
    system_prompt=f"You are a capable assistant who works on its own.\n{_INSTRUCTIONS}",
    disallowed_tools=(TASK, "ask_clarification", "present_files"),
    max_turns=100,
)

BASH_SUBAGENT = SubagentType(
    name=BASH,
    description=(
        "Runs commands and reports what came of them: builds, tests, conversions, data work with long output that "
        "the conversation need not see."
    ),
    system_prompt=(
        "You run commands in the conversation's sandbox. Run one step at a time, look at exit codes and errors, "
        f"and sum up output instead of repeating it.\n{_INSTRUCTIONS}"
    ),
    tools=(BASH, "ls", "read_file", "write_file", "str_replace"),
    disallowed_tools=(TASK, "ask_clarification", "present_files"),
    max_turns=60,
)

BUILT_IN = (GENERAL_PURPOSE, BASH_SUBAGENT)


def configured_types(config: SubagentsConfig) -> dict[str, SubagentType]:
    """Return all kinds by name.

    A custom kind takes the place of a built-in one of its name. The section's own `timeout_seconds` and `max_turns`
    hold for built-in kinds only; what `agents` says of one kind holds in any case.

    >>> list(configured_types(SubagentsConfig()))
    ['general-purpose', 'bash']
    """
    kinds = {kind.name: _with_defaults(kind, config) for kind in BUILT_IN}
    kinds |= {name: _from_config(name, entry) for name, entry in config.custom_agents.items()}
    for name, override in config.agents.items():
        if name in kinds:
            kinds[name] = _override(kinds[name], override.model_dump())
    return kinds


def available_types(
    kinds: Mapping[str, SubagentType], tools: Sequence[BaseTool]
) -> dict[str, SubagentType]:
    """Return the kinds that can work with the lead agent's tools: `bash` needs the tool of that name."""
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
