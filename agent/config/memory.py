"""The `memory` section."""

from pydantic import Field

from agent.config.section import Section


class MemoryConfig(Section):
    """What the agent remembers of people and rooms, and how much of it goes into its prompt.

    Attributes:
        enabled: Whether it remembers at all; off, nothing is learnt and nothing is put into prompts.
        storage_path: The folder of the documents, relative to the data folder; "" = `memory` there.
        debounce_seconds: How long a conversation must rest before it is learnt from.
        model_name: An entry of `models` that reads conversations; None = the first.
        max_facts: How many facts one document keeps, the most certain ones.
        fact_confidence_threshold: Facts below it are not taken over from a model.
        injection_enabled: Whether what is remembered goes into the prompt.
        max_injection_tokens: The most that may, in estimated tokens.
    """

    enabled: bool = True
    storage_path: str = ""
    debounce_seconds: int = Field(default=30, ge=1, le=300)
    model_name: str | None = None
    max_facts: int = Field(default=100, ge=10, le=500)
    fact_confidence_threshold: float = Field(default=0.7, ge=0, le=1)
    injection_enabled: bool = True
    max_injection_tokens: int = Field(default=2000, ge=100, le=8000)
