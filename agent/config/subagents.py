"""The `subagents` section."""

from pydantic import Field, model_validator

from agent.config.section import Section

BUILT_IN_SUBAGENTS = ("general-purpose", "bash")
"""The kinds that are always there."""

INHERIT = "inherit"
"""As a model's name: the model of whoever delegates."""


class SubagentOverrideConfig(Section):
    """What one kind of subagent does differently; null leaves its own value.

    Attributes:
        timeout_seconds: Its deadline, seconds.
        max_turns: How many times its model may be called.
        model: An entry of `models`, or `inherit`: the model of whoever delegates.
        skills: Which skills it knows; [] = none.
    """

    timeout_seconds: float | None = Field(default=None, gt=0)
    max_turns: int | None = Field(default=None, ge=1, le=1_000)
    model: str | None = None
    skills: list[str] | None = None


class CustomSubagentConfig(Section):
    """A kind of subagent of the operator's own.

    Attributes:
        description: When to delegate to it; the lead agent reads this.
        system_prompt: Who it is and how it works.
        tools: Names of the tools it may use; null = all that the lead agent has.
        disallowed_tools: Names that are taken away again.
        skills: Which skills it knows; null = all, [] = none.
        model: An entry of `models`, or `inherit`: the model of whoever delegates.
        max_turns: How many times its model may be called.
        timeout_seconds: Its deadline, seconds.
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
    """How work is delegated.

    Attributes:
        enabled: Whether it can be; sessions ask for it by `subagent_enabled`.
        max_concurrent: How many subagents of one run work at once.
        timeout_seconds: The deadline of the built-in kinds, seconds.
        max_turns: How many times the model of a built-in kind may be called; null = the kind's own number.
        agents: Changes to kinds, by name.
        custom_agents: Further kinds, by name; one of a built-in's name takes its place.
    """

    enabled: bool = True
    max_concurrent: int = Field(default=3, ge=1, le=4)
    timeout_seconds: float = Field(default=900.0, gt=0)
    max_turns: int | None = Field(default=None, ge=1, le=1_000)
    agents: dict[str, SubagentOverrideConfig] = Field(default_factory=dict)
    custom_agents: dict[str, CustomSubagentConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _changes_name_kinds(self) -> "SubagentsConfig":
        known = {*BUILT_IN_SUBAGENTS, *self.custom_agents}
        strangers = sorted(set(self.agents) - known)
        if strangers:
            raise ValueError(f"agents: there is no kind of subagent named {strangers[0]!r}")
        return self

    @property
    def models_named(self) -> tuple[str, ...]:
        """Entries of `models` that kinds ask for."""
        asked = {override.model for override in self.agents.values()}
        asked |= {custom.model for custom in self.custom_agents.values()}
        return tuple(sorted(name for name in asked if name is not None and name != INHERIT))
