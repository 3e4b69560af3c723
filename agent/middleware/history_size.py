"""Measures the length of a history, and finds where it can be cut. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage

from agent.config import SummarizationConfig, ThreadSize
from agent.errors import ModelUnusable
from agent.token_estimate import chars_for_tokens, estimate_message_tokens

WINDOW_SHARE = 0.8
"""The share of the model's context size that starts a summary, unless `summarization.trigger` is set."""

TRIGGER_TOKENS = 80_000
"""The size that starts one if the context size is unknown: well within the 128,000 tokens of today's smaller models."""


WHOLE_CHARS = 1_000
"""Texts up to this length are never shortened, characters: shortening them saves too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySize:
    """A size of a history, in messages or tokens."""

    unit: Literal["messages", "tokens"]
    value: int

    def is_reached(self, messages: Sequence[AnyMessage]) -> bool:
        """Return whether a history has at least this size."""
        size = len(messages) if self.unit == "messages" else request_tokens(messages)
        return size >= self.value


def trigger_sizes(config: SummarizationConfig, model: BaseChatModel) -> list[HistorySize]:
    """Return the sizes that start a summary.

    Raises:
        ModelUnusable: A size is a fraction, and the context size is unknown.
    """
    window = context_size(config, model)
    if config.trigger:
        return [history_size(size, window) for size in config.trigger]
    default = int(window * WINDOW_SHARE) if window else TRIGGER_TOKENS
    return [HistorySize(unit="tokens", value=default)]


def context_size(config: SummarizationConfig, model: BaseChatModel) -> int | None:
    """Return how many tokens the model accepts; None = unknown."""
    return config.max_input_tokens or (model.profile or {}).get("max_input_tokens")


def history_size(size: ThreadSize, window: int | None) -> HistorySize:
    """Return a configured size without fractions.

    Raises:
        ModelUnusable: It is a fraction, and the context size is unknown.
    """
    if size.type != "fraction":
        return HistorySize(unit=size.type, value=int(size.value))
    if window is None:
        raise ModelUnusable(
            "summarization: a fraction needs the model's context size; set summarization.max_input_tokens"
        )
    return HistorySize(unit="tokens", value=int(size.value * window))


def request_tokens(messages: Sequence[AnyMessage]) -> int:
    """Estimate the tokens of a request: the usage that the last response reported, plus the messages after it.

    Without reported usage, all messages are estimated.
    """
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        # Compare `type` first: isinstance checks of messages are slow, and a thread may have thousands.
        if message.type == "ai" and message.usage_metadata:
            following = estimate_message_tokens(messages[at + 1 :])
            return message.usage_metadata["total_tokens"] + following
    return estimate_message_tokens(messages)


def cut_index(messages: Sequence[AnyMessage], keep: HistorySize) -> int:
    """Return how many messages to drop so that about `keep` stay. At least one stays, and calls keep their results.

    >>> from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    >>> call = AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1"}])
    >>> history = [HumanMessage("a"), call, ToolMessage("b", tool_call_id="1"), AIMessage("c")]
    >>> [cut_index(history, HistorySize(unit="messages", value=n)) for n in (1, 2, 3, 9)]
    [3, 1, 1, 0]
    """
    if keep.unit == "messages":
        at = max(0, len(messages) - keep.value)
    else:
        at, tokens = len(messages), 0
        while at and (tokens := tokens + estimate_message_tokens([messages[at - 1]])) <= keep.value:
            at -= 1
    at = min(at, len(messages) - 1)
    while at > 0 and messages[at].type == "tool":
        at -= 1
    return max(at, 0)


def shorten_message(message: AnyMessage, max_tokens: int) -> AnyMessage:
    """Shorten a message's texts to `max_tokens` (estimated). A note replaces the middle of each shortened text."""
    if isinstance(message.content, str):
        short = _shorten(message.content, max_tokens)
        return (
            message if short is message.content else message.model_copy(update={"content": short})
        )
    blocks = [
        {**block, "text": _shorten(block["text"], max_tokens)}
        if isinstance(block, dict) and isinstance(block.get("text"), str)
        else block
        for block in message.content
    ]
    return message if blocks == message.content else message.model_copy(update={"content": blocks})


def _shorten(text: str, max_tokens: int) -> str:
    limit = max(chars_for_tokens(text, max_tokens), WHOLE_CHARS)
    if len(text) <= limit:
        return text
    half = limit // 2
    dropped = len(text) - 2 * half
    note = f"\n... [{dropped} characters left out: the conversation is too long for the model]\n"
    return text[:half] + note + text[len(text) - half :]
