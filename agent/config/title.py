"""The `title` section."""

from pydantic import Field

from agent.config.section import Section


class TitleConfig(Section):
    """How threads get their names.

    Attributes:
        max_words: What a model is asked for.
        max_chars: Longest title, ellipsis included.
        model_name: An entry of `models` that writes titles; None = the first words of the user, no model is called.
    """

    enabled: bool = True
    max_words: int = Field(default=6, ge=1, le=20)
    max_chars: int = Field(default=60, ge=10, le=200)
    model_name: str | None = None
