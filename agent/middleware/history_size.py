"""Measures the length of a history, and finds where it can be cut. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage

from agent.config import SummarizationConfig, ThreadSize
from agent.token_estimate import estimate_message_tokens

UNKNOWN_WINDOW = 80_000
"""The context size to assume if it is unknown, tokens: well within the 128,000 of today's smaller models."""

SUMMARY_SHARE = 0.6
"""The share of the context size that starts a summary, unless `summarization.trigger` is set."""

LEAVE_OUT_FACTOR = 4 / 3
"""Old tool results are left out when the history is this many times as long as when a summary starts, that is, at 80%
of the context size. Each time, the rest of the prompt is no longer cached, so it pays to wait: with this value, a
conversation of large reads has 89% prefix hits (`make bench BENCH=agent`)."""

FULL_SHARE = 0.95
"""The share of a known context size that requests may use. The rest is a margin for errors of the estimate."""

KEPT_SHARE = 0.12
"""The share of the context size that a summary never replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySize:
    """A size of a history, in messages or tokens."""

    unit: Literal["messages", "tokens"]
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSize:
    """How much of the end of a history to keep. Both limits apply; `messages` None = no limit."""

    tokens: int
    messages: int | None = None

    def at_most(self, tokens: int) -> "KeptSize":
        """Return the smaller size."""
        return replace(self, tokens=min(self.tokens, tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLimits:
    """The sizes at which a history is shortened.

    Attributes:
        window: The model's context size, tokens, or `UNKNOWN_WINDOW`.
        triggers: Any of these sizes starts a summary.
        leave_out_at: The size at which old tool results are left out, tokens.
        full_at: Requests of this size or more are not sent, tokens; None = the context size is unknown.
        keep: How much to keep.
    """

    window: int
    triggers: tuple[HistorySize, ...]
    leave_out_at: int
    full_at: int | None
    keep: KeptSize

    @classmethod
    def from_config(cls, config: SummarizationConfig, model: BaseChatModel) -> "HistoryLimits":
        """Return the limits for a model."""
        known = config.max_input_tokens or (model.profile or {}).get("max_input_tokens")
        window = known or UNKNOWN_WINDOW
        triggers = [_history_size(size, window) for size in config.trigger] or [
            HistorySize(unit="tokens", value=int(window * SUMMARY_SHARE))
        ]
        largest = max(
            (size.value for size in triggers if size.unit == "tokens"),
            default=window * SUMMARY_SHARE,
        )
        full_at = int(window * FULL_SHARE)
        return cls(
            window=window,
            triggers=tuple(triggers),
            leave_out_at=min(int(largest * LEAVE_OUT_FACTOR), full_at),
            full_at=full_at if known else None,
            keep=_kept_size(config.keep, window),
        )

    def are_reached(self, messages: int, tokens: int) -> bool:
        """Return whether a history of this size should be summarized."""
        return any(
            (messages if size.unit == "messages" else tokens) >= size.value
            for size in self.triggers
        )


def _history_size(size: ThreadSize, window: int) -> HistorySize:
    if size.type == "fraction":
        return HistorySize(unit="tokens", value=int(size.value * window))
    return HistorySize(unit=size.type, value=int(size.value))


def _kept_size(size: ThreadSize, window: int) -> KeptSize:
    kept = _history_size(size, window)
    if kept.unit == "tokens":
        return KeptSize(tokens=kept.value)
    return KeptSize(messages=kept.value, tokens=int(window * KEPT_SHARE))


def request_tokens(messages: Sequence[AnyMessage]) -> int:
    """Estimate the tokens of a request: the usage that the last response reported, plus the messages after it.

    If the last response reported none, for example because the call failed, all messages are estimated. An earlier
    response may have reported the usage of a request that was sent before the history was shortened.

    >>> from langchain_core.messages import AIMessage, HumanMessage
    >>> usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    >>> answers = [AIMessage("a", usage_metadata=usage), HumanMessage("abcd"), AIMessage("failed")]
    >>> request_tokens(answers[:2]), request_tokens(answers)
    (104, 12)
    """
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        # Compare `type` first: isinstance checks of messages are slow, and a thread may have thousands.
        if message.type == "ai":
            if message.usage_metadata is None:
                break
            following = estimate_message_tokens(messages[at + 1 :])
            return message.usage_metadata["total_tokens"] + following
    return estimate_message_tokens(messages)


def cut_index(messages: Sequence[AnyMessage], keep: KeptSize) -> int:
    """Return how many messages to drop to keep at most `keep`. Keeps at least one, and keeps results with their calls.

    >>> from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    >>> call = AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}])
    >>> history = [HumanMessage("a"), call, ToolMessage("b", tool_call_id="1"), AIMessage("c")]
    >>> [cut_index(history, KeptSize(messages=n, tokens=900)) for n in (1, 2, 3, 9)]
    [3, 1, 1, 0]
    """
    most = len(messages) if keep.messages is None else keep.messages
    at, tokens = len(messages), 0
    while at and len(messages) - at < most:
        tokens += estimate_message_tokens([messages[at - 1]])
        if tokens > keep.tokens:
            break
        at -= 1
    at = min(at, len(messages) - 1)
    while at > 0 and messages[at].type == "tool":
        at -= 1
    return max(at, 0)
