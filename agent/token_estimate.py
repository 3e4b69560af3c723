"""Estimates how many tokens texts and messages take. Pure.

An exact count needs each provider's tokenizer tables from the network. The rates are high on purpose: if the estimate
is too low, the model rejects the history; if it is too high, the history is only summarized earlier.
"""

import math
from collections.abc import Iterable
from typing import Any

from langchain_core.messages import BaseMessage

ASCII_RATE = 1 / 4
"""Tokens per ASCII character: English prose has 0.2 to 0.25, code up to 0.3."""

BYTE_RATE = 1 / 2
"""Tokens of other characters per UTF-8 byte after the first: 0.5 for Cyrillic, Greek, Arabic, accents (0.25 to 0.5 in
today's tokenizers), 1 for Chinese, Japanese and Korean (0.6 to 1.3, more with older tokenizers), 1.5 for emoji."""

MESSAGE_TOKENS = 3
"""Tokens of a message's role and separators."""

IMAGE_TOKENS = 1_200
"""Tokens of an image: OpenAI up to 1,105, Anthropic up to 1,600."""

_ATTACHMENTS = frozenset(
    {*("image", "image_url", "input_image"), *("audio", "input_audio", "video", "file")}
)
"""Types of blocks with base64 data, which is not text. The tokens of a file are unknown, so count it like an image."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text.

    >>> estimate_tokens("abcdefgh"), estimate_tokens("你好"), estimate_tokens("привет"), estimate_tokens("")
    (2, 2, 3, 0)
    """
    if text.isascii():
        return math.ceil(len(text) * ASCII_RATE)
    ascii_chars = len(text.encode("ascii", "ignore"))
    # Broken JSON can contain half a surrogate pair.
    further_bytes = len(text.encode("utf-8", "surrogatepass")) - len(text)
    return math.ceil(ascii_chars * ASCII_RATE + further_bytes * BYTE_RATE)


def estimate_message_tokens(messages: Iterable[BaseMessage]) -> int:
    """Estimate the tokens of messages, with their tool calls.

    >>> estimate_message_tokens([BaseMessage("abcdefgh", type="human")])
    5
    """
    tokens = ascii_chars = 0
    for message in messages:
        tokens += MESSAGE_TOKENS
        content = message.content
        # Fast path for nearly all messages of a long thread: it saves a call for each.
        if type(content) is str and content.isascii():
            ascii_chars += len(content)
        else:
            tokens += _content_tokens(content)
        if message.type == "ai" and (calls := getattr(message, "tool_calls", None)):
            tokens += estimate_tokens(repr(calls))
    return tokens + math.ceil(ascii_chars * ASCII_RATE)


def chars_for_tokens(text: str, tokens: int) -> int:
    """Return how many characters of a text take about this many tokens.

    >>> chars_for_tokens("abcdefgh", 1), chars_for_tokens("你好吗", 1), chars_for_tokens("", 9)
    (4, 1, 0)
    """
    return tokens * len(text) // max(1, estimate_tokens(text))


def _content_tokens(content: str | list[str | dict[str, Any]]) -> int:
    blocks = [content] if isinstance(content, str) else content
    return sum(map(_block_tokens, blocks))


def _block_tokens(block: str | dict[str, Any]) -> int:
    if isinstance(block, str):
        return estimate_tokens(block)
    if str(block.get("type")) in _ATTACHMENTS:
        return IMAGE_TOKENS
    text = block.get("text")
    return estimate_tokens(text if isinstance(text, str) else repr(block))
