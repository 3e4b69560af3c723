"""The `title` section."""

from pydantic import Field

from agent.config.section import Section


class TitleConfig(Section):
    """Titles of threads.

    Attributes:
        max_words: Maximum number of words, as requested from the model.
        max_chars: Longest title, ellipsis included.
        model_name: An entry of `models` that writes titles; None = the user's first words, without a model call.
    """

    enabled: bool = True
    max_words: int = Field(default=6, ge=1, le=20)
    max_chars: int = Field(default=60, ge=10, le=200)
    model_name: str | None = None
