"""The `models` section."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from typing_extensions import override

from agent.config.section import Section
from agent.config.usage import ModelPriceConfig

DEMO_MODEL_NAME = "demo"
DEMO_MODEL_CLASS = "agent.models.demo:DemoChatModel"


class ModelConfig(Section):
    """One entry of `models`. Unknown keys are passed to the class.

    Attributes:
        name: Its name, for sessions and `/model`.
        use: The LangChain chat model class, `module:Class`.
        model: The provider's model name.
        when_thinking_enabled: Keys merged into the class's arguments if thinking is on.
        when_thinking_disabled: Keys merged if thinking is off; None = derived from
            `when_thinking_enabled`.
        thinking: Shorthand for `when_thinking_enabled: {thinking: ...}`.
        price: Its price; None = unknown.
    """

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
    price: ModelPriceConfig | None = None

    @classmethod
    @override
    def passes_extra_keys(cls, _data: Mapping[str, Any], /) -> bool:
        return True


DEMO_MODEL = {
    "name": DEMO_MODEL_NAME,
    "display_name": "Demo",
    "description": "The built-in demo, without a real model. Set `models` in config.yaml to get one.",
    "use": DEMO_MODEL_CLASS,
    "model": DEMO_MODEL_NAME,
}
