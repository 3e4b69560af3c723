"""The `usage` section, and the prices of models."""

from pydantic import Field

from agent.config.section import Section


class ModelPriceConfig(Section):
    """Prices of a model, US dollars per million tokens.

    Attributes:
        input: Price of the prompt.
        cached_input: Price of the part of the prompt that the provider has cached; null = as `input`.
        output: Price of the answer, reasoning included.
    """

    input: float = Field(default=0.0, ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    output: float = Field(default=0.0, ge=0)


class UsageLimitConfig(Section):
    """The allowance of one person, room or agent, or of the whole service; null = no limit.

    Attributes:
        tokens_per_day: Input and output tokens in a UTC day.
        tokens_per_month: Input and output tokens in a UTC month.
        cost_per_day: US dollars in a UTC day.
        cost_per_month: US dollars in a UTC month.
    """

    tokens_per_day: int | None = Field(default=None, ge=1)
    tokens_per_month: int | None = Field(default=None, ge=1)
    cost_per_day: float | None = Field(default=None, gt=0)
    cost_per_month: float | None = Field(default=None, gt=0)


class UsageLimitsConfig(Section):
    """The limits.

    Attributes:
        person: The limit of each person.
        room: The limit of each chat.
        agent: The limit of each agent.
        service: The limit of the whole service.
    """

    person: UsageLimitConfig = Field(default_factory=UsageLimitConfig)
    room: UsageLimitConfig = Field(default_factory=UsageLimitConfig)
    agent: UsageLimitConfig = Field(default_factory=UsageLimitConfig)
    service: UsageLimitConfig = Field(default_factory=UsageLimitConfig)

    @property
    def has_costs(self) -> bool:
        """Whether a limit is in US dollars."""
        return any(
            cost is not None
            for one in (self.person, self.room, self.agent, self.service)
            for cost in (one.cost_per_day, one.cost_per_month)
        )


class UsageConfig(Section):
    """Limits on the usage of model calls.

    Attributes:
        tokens_per_turn: Input and output tokens that the agent may use to answer one message; null = no limit.
        tokens_per_subagent: Input and output tokens that a subagent may use for one task; null = no limit.
        limits: Limits per day or month.
    """

    tokens_per_turn: int | None = Field(default=None, ge=1)
    tokens_per_subagent: int | None = Field(default=None, ge=1)
    limits: UsageLimitsConfig = Field(default_factory=UsageLimitsConfig)
