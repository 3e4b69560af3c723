"""The `models` section."""

from typing import Any, ClassVar

from pydantic import Field

from agent.config.section import Section

DEMO_MODEL_NAME = "demo"
DEMO_MODEL_CLASS = "agent.models.demo:DemoChatModel"


class ModelConfig(Section):
    """One entry of `models`. Unknown keys go to the class as they are.

    Attributes:
        name: How sessions and `/model` call it.
        use: The LangChain chat model class, `module:Class`.
        model: The provider's name of the model.
        when_thinking_enabled: Keys merged into the class's arguments while the session thinks.
        when_thinking_disabled: The same while it does not; None = derived from the enabled form.
        thinking: Short form of `when_thinking_enabled: {thinking: ...}`.
    """

    passes_extra_keys: ClassVar[bool] = True

    name: str = Field(min_length=1)
    display_name: str | None = None
    description: str | None = None
    use: str = Field(min_length=1)
    model: str = Field(min_length=1)
    supports_thinking: bool = False
    supports_vision: bool = False
    supports_reasoning_effort: bool = False
    when_thinking_enabled: dict[str, Any] = Field(default_factory=dict)
    when_thinking_disabled: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


DEMO_MODEL = {
    "name": DEMO_MODEL_NAME,
    "display_name": "Demo",
    "description": "The built-in demo: no model behind it. Set `models` in config.yaml to get a real one.",
    "use": DEMO_MODEL_CLASS,
    "model": DEMO_MODEL_NAME,
}
