"""Sections for the middleware around model and tool calls: retries, loops, output sizes, summaries."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from agent.config.section import Section


class ThreadSize(Section):
    """A thread's length: in messages, in tokens, or as a fraction of the model's context size."""

    type: Literal["messages", "tokens", "fraction"] = "messages"
    value: float = Field(default=20, gt=0)

    @model_validator(mode="after")
    def _value_fits_type(self) -> "ThreadSize":
        if self.type == "fraction" and self.value > 1:
            raise ValueError("a fraction must be at most 1")
        if self.type != "fraction" and self.value != int(self.value):
            raise ValueError(f"{self.type} must be a whole number")
        return self


class SummarizationConfig(Section):
    """Summaries of long threads for the model. The thread itself keeps all messages.

    Attributes:
        enabled: Whether threads are summarized. If not, a request that is too long for the model fails.
        model_name: An entry of `models` that writes summaries; None = the default one.
        trigger: Any of these sizes starts a summary; empty = 60% of the context size.
        keep: How much of the end to keep.
        max_input_tokens: The model's context size; None = from the model's profile.
        trim_tokens_to_summarize: Maximum tokens per call of the summary model. Longer texts are read in pieces; 0 = no
            limit.
        summary_prompt: The summary prompt, with `{messages}`; None = the built-in one.
    """

    enabled: bool = True
    model_name: str | None = None
    trigger: list[ThreadSize] = Field(default_factory=list)
    keep: ThreadSize = Field(default_factory=ThreadSize)
    max_input_tokens: int | None = Field(default=None, gt=0)
    trim_tokens_to_summarize: int = Field(default=16_000, ge=0)
    summary_prompt: str | None = None

    @field_validator("trigger", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, dict) else value

    @field_validator("summary_prompt")
    @classmethod
    def _prompt_has_a_place_for_messages(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            filled = value.format(messages="\0")
        except (LookupError, ValueError) as error:
            raise ValueError(
                "the only placeholder is {messages}; double all other braces"
            ) from error
        if "\0" not in filled:
            raise ValueError("{messages} is missing")
        return value


class LlmRetryConfig(Section):
    """Retries of failed model calls.

    Attributes:
        max_attempts: Attempts per model before the next one is tried.
        first_wait_s: Delay before the second attempt, seconds; doubled for each later one.
        max_wait_s: Longest such delay, seconds.
        max_retry_after_s: Longest delay that a server may request, seconds. If it requests more, the call fails at
            once.
        fallback: Whether to try the entries that follow in `models`.
    """

    max_attempts: int = Field(default=3, ge=1, le=10)
    first_wait_s: float = Field(default=1.0, ge=0)
    max_wait_s: float = Field(default=8.0, ge=0)
    max_retry_after_s: float = Field(default=30.0, ge=0)
    fallback: bool = True


class CircuitBreakerConfig(Section):
    """When to stop calling a model for a while because it keeps failing.

    Attributes:
        failure_threshold: Consecutive failures; 0 = never stop.
        recovery_timeout_sec: Length of the pause, seconds. After it, one call is let through.
    """

    failure_threshold: int = Field(default=5, ge=0)
    recovery_timeout_sec: float = Field(default=60.0, gt=0)


class LoopDetectionConfig(Section):
    """When to end a turn that repeats its tool calls. Only calls since the user's message count.

    Attributes:
        enabled: Whether loops are detected.
        warn_threshold: Number of identical calls after which the model is warned.
        hard_limit: Number of identical calls after which the model must answer.
        window_size: How many of the latest messages with calls to compare.
        tool_freq_warn: Calls of one tool, with any arguments, after which the model is warned; 0 = never.
        tool_freq_hard_limit: Calls of one tool after which the model must answer; 0 = no limit.
    """

    enabled: bool = True
    warn_threshold: int = Field(default=3, ge=2)
    hard_limit: int = Field(default=5, ge=2)
    window_size: int = Field(default=20, ge=2)
    tool_freq_warn: int = Field(default=0, ge=0)
    tool_freq_hard_limit: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _warning_comes_first(self) -> "LoopDetectionConfig":
        if (
            self.warn_threshold > self.hard_limit
            or 0 < self.tool_freq_hard_limit < self.tool_freq_warn
        ):
            raise ValueError("a warning threshold must not be above its limit")
        if self.window_size < self.hard_limit:
            raise ValueError("window_size must be at least hard_limit")
        return self


class ToolOutputConfig(Section):
    """Size limits of tool results, in characters.

    Longer results are saved to a file; the model sees the beginning, the end and the path.

    Attributes:
        enabled: Whether `max_chars` applies. Limits of individual tools, such as `sandbox.bash_output_max_chars`,
            always apply.
        max_chars: The limit for all tools.
        preview_head_chars: How much of the beginning to show.
        preview_tail_chars: How much of the end to show.
        exempt_tools: Tools that `max_chars` does not apply to.
    """

    enabled: bool = True
    max_chars: int = Field(default=12_000, ge=500)
    preview_head_chars: int = Field(default=8_000, ge=0)
    preview_tail_chars: int = Field(default=3_000, ge=0)
    exempt_tools: list[str] = Field(default_factory=lambda: ["read_file"])

    @model_validator(mode="after")
    def _previews_are_shorter(self) -> "ToolOutputConfig":
        if self.preview_head_chars + self.preview_tail_chars >= self.max_chars:
            raise ValueError("the preview must be shorter than max_chars")
        return self


class SafetyFinishReasonConfig(Section):
    """Whether to drop the tool calls of responses that the provider's safety filter cut off."""

    enabled: bool = True
