"""The `guardrails` section."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from agent.config.section import Section


class GuardrailProviderConfig(Section):
    """The guardrail provider.

    Attributes:
        use: `allowlist`, `oap`, or `module:Class`.
        config: The arguments of its class.
    """

    use: str = Field(min_length=1)
    config: dict[str, Any] = Field(default_factory=dict, repr=False)


class GuardrailsConfig(Section):
    """Authorization of tool calls before they run.

    Attributes:
        ask: Tools that need a person's approval, by name or pattern (`github_*`), after the provider has allowed the
            call.
        fail_closed: Whether calls are denied if the provider fails or times out; false = they are allowed.
        passport: Passed to the provider as the agent's id. For `oap`, this is the passport itself.
        timeout_seconds: Time limit of one decision, seconds.
    """

    enabled: bool = False
    ask: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    fail_closed: bool = True
    passport: str | None = None
    timeout_seconds: float = Field(default=10.0, gt=0, le=300, allow_inf_nan=False)
    provider: GuardrailProviderConfig | None = None

    @model_validator(mode="after")
    def _ask_is_in_effect(self) -> "GuardrailsConfig":
        if self.ask and not self.enabled:
            raise ValueError("ask has no effect without enabled: true; set it, or remove ask")
        return self

    @model_validator(mode="after")
    def _somebody_decides(self) -> "GuardrailsConfig":
        if self.enabled and self.provider is None and not self.ask:
            raise ValueError(
                "provider.use is not set: use allowlist, oap or module:Class; or list tools in ask"
            )
        return self
