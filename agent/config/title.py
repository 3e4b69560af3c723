"""The `title` section."""

from pydantic import Field, field_validator

from agent.config.section import Section


class TitleConfig(Section):
    """Titles of threads.

    Attributes:
        max_words: Maximum number of words, as requested from the model.
        max_chars: Longest title, ellipsis included.
        prompt_template: The title model's prompt, with the fields `{max_words}`, `{user_msg}` and `{assistant_msg}`.
            Double all other braces. None = Parley's own prompt.
        model_name: An entry of `models` that writes titles; None = the user's first words, without a model call.
    """

    enabled: bool = True
    max_words: int = Field(default=6, ge=1, le=20)
    max_chars: int = Field(default=60, ge=10, le=200)
    prompt_template: str | None = Field(default=None, max_length=10_000)
    model_name: str | None = None

    @field_validator("prompt_template")
    @classmethod
    def _has_known_fields(cls, template: str | None) -> str | None:
        if template is not None:
            try:
                template.format(max_words=1, user_msg="", assistant_msg="")
            except (LookupError, ValueError, AttributeError):
                raise ValueError(
                    "can contain {max_words}, {user_msg} and {assistant_msg}; double all other braces"
                ) from None
        return template
