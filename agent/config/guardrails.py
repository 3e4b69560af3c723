"""The `guardrails` section."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from agent.config.section import Section


class GuardrailProviderConfig(Section):
    """Who decides.

    Attributes:
        use: `allowlist`, `oap`, or `module:Class`.
        config: The arguments of that class.
    """

    use: str = Field(min_length=1)
    config: dict[str, Any] = Field(default_factory=dict, repr=False)


class GuardrailsConfig(Section):
    """Whether tool calls are authorised before they run, by whom, and what holds when that fails.

    Attributes:
        ask: Tools before which a person is asked, by name or pattern (`github_*`); after the provider allowed them.
        fail_closed: A provider that fails or is late denies; false = it allows.
        passport: Handed to the provider as the agent's id; for `oap` the passport itself.
        timeout_seconds: How long one decision may take.
    """

    enabled: bool = False
    ask: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    fail_closed: bool = True
    passport: str | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=300, allow_inf_nan=False)
    provider: GuardrailProviderConfig | None = None

    @model_validator(mode="after")
    def _somebody_decides(self) -> "GuardrailsConfig":
        if self.enabled and self.provider is None and not self.ask:
            raise ValueError(
                "provider.use is not set: use allowlist, oap or module:Class; or list tools in ask"
            )
        return self
