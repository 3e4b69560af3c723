"""The `memory` section."""

from pydantic import Field

from agent.config.section import Section


class MemoryConfig(Section):
    """Long-term memory of people and rooms.

    Attributes:
        enabled: Whether memory is extracted and used at all.
        storage_path: The folder of the documents, relative to the data folder; "" = `memory`.
        debounce_seconds: How long a conversation must pause before memory is extracted from it, seconds.
        max_calls_per_hour: Maximum number of model calls that extract memory for one person or room. They are spread
            evenly.
        model_name: An entry of `models` that extracts memory; None = the first.
        max_facts: Maximum number of facts per document. The most certain ones are kept.
        fact_confidence_threshold: Extracted facts with a lower confidence are dropped.
        injection_enabled: Whether memory is added to the prompt.
        max_injection_tokens: Size limit of the memory block, estimated tokens.
    """

    enabled: bool = True
    storage_path: str = ""
    debounce_seconds: int = Field(default=30, ge=1, le=300)
    max_calls_per_hour: int = Field(default=20, ge=1, le=3600)
    model_name: str | None = None
    max_facts: int = Field(default=100, ge=10, le=500)
    fact_confidence_threshold: float = Field(default=0.7, ge=0, le=1)
    injection_enabled: bool = True
    max_injection_tokens: int = Field(default=2000, ge=100, le=8000)
