"""The `subagents` section."""

from pydantic import Field, model_validator

from agent.config.section import Section

BUILT_IN_SUBAGENTS = ("general-purpose", "bash")
"""The built-in types."""

INHERIT = "inherit"
"""Model name that selects the parent's model."""


class SubagentOverrideConfig(Section):
    """Overrides for one type of subagent. Null keeps the type's own value.

    Attributes:
        timeout_seconds: Its time limit, seconds.
        max_turns: Maximum number of calls of its model.
        model: An entry of `models`, or `inherit`: the parent's model.
        skills: Names of its skills; [] = none.
    """

    timeout_seconds: float | None = Field(default=None, gt=0)
    max_turns: int | None = Field(default=None, ge=1, le=1_000)
    model: str | None = None
    skills: list[str] | None = None


class CustomSubagentConfig(Section):
    """A custom type of subagent.

    Attributes:
        description: When to delegate to it, for the lead agent.
        system_prompt: Its system prompt.
        tools: Names and patterns of its tools; null = all of the lead agent's.
        disallowed_tools: Names and patterns of tools to exclude.
        skills: Names of its skills; null = all, [] = none.
        model: An entry of `models`, or `inherit`: the parent's model.
        max_turns: Maximum number of calls of its model.
        timeout_seconds: Its time limit, seconds.
    """

    description: str = Field(min_length=1)
    system_prompt: str = Field(min_length=1)
    tools: list[str] | None = None
    disallowed_tools: list[str] = Field(default_factory=lambda: ["task"])
    skills: list[str] | None = None
    model: str = "inherit"
    max_turns: int = Field(default=50, ge=1, le=1_000)
    timeout_seconds: float = Field(default=900.0, gt=0)


class SubagentsConfig(Section):
    """Delegation to subagents.

    Attributes:
        enabled: Whether delegation is available. Sessions turn it on with `subagent_enabled`.
        max_concurrent: Maximum number of concurrent subagents of one run.
        calls_per_message: Budget of delegations per message of a person.
        timeout_seconds: The time limit of built-in types, seconds.
        max_turns: Maximum number of model calls of built-in types; null = the type's own limit.
        agents: Overrides by type name.
        custom_agents: Custom types by name. A custom type with a built-in type's name replaces it.
    """

    enabled: bool = True
    max_concurrent: int = Field(default=3, ge=1, le=4)
    calls_per_message: int = Field(default=6, ge=1, le=1_000)
    timeout_seconds: float = Field(default=900.0, gt=0)
    max_turns: int | None = Field(default=None, ge=1, le=1_000)
    agents: dict[str, SubagentOverrideConfig] = Field(default_factory=dict)
    custom_agents: dict[str, CustomSubagentConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _changes_name_kinds(self) -> "SubagentsConfig":
        known = {*BUILT_IN_SUBAGENTS, *self.custom_agents}
        strangers = sorted(set(self.agents) - known)
        if strangers:
            lines = [f"agents: there is no subagent type named {name!r}" for name in strangers]
            raise ValueError("\n".join(lines))
        return self

    @property
    def models_named(self) -> tuple[str, ...]:
        """The entries of `models` that subagents use."""
        asked = {override.model for override in self.agents.values()}
        asked |= {custom.model for custom in self.custom_agents.values()}
        return tuple(sorted(name for name in asked if name is not None and name != INHERIT))
