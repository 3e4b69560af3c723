"""Token estimates are close to tokenizers' counts, and include each part of a message."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from agent.token_estimate import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    chars_for_tokens,
    estimate_message_tokens,
    estimate_tokens,
)

CALL: Any = {"name": "write_file", "args": {"content": "字" * 100}, "id": "c1"}


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog.", 0.2, 0.3),
        ("今天天气怎么样？我们去公园散步吧。", 0.6, 1.3),
        ("今日の天気はどうですか。公園へ散歩に行きましょう。", 0.6, 1.3),
        ("Какая сегодня погода? Пойдём гулять в парк.", 0.25, 0.5),
    ],
)
def test_estimates_are_within_what_tokenizers_count(text: str, least: float, most: float) -> None:
    """The limits are tokens per character, as published for the vocabularies in use."""
    assert least * len(text) <= estimate_tokens(text) <= most * len(text)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (HumanMessage("a" * 400), 100),
        (HumanMessage("字" * 400), 400),
        (HumanMessage([{"type": "text", "text": "a" * 400}, "a" * 400]), 200),
        (HumanMessage([{"type": "image_url", "image_url": {"url": "x" * 90_000}}]), IMAGE_TOKENS),
        (ToolMessage("a" * 400, tool_call_id="c1"), 100),
        (AIMessage("a" * 400, tool_calls=[CALL]), 221),
    ],
)
def test_all_parts_of_a_message_count(message: AnyMessage, tokens: int) -> None:
    assert estimate_message_tokens([message]) == tokens + MESSAGE_TOKENS
    assert estimate_message_tokens([message] * 3) == 3 * (tokens + MESSAGE_TOKENS)


def test_half_a_surrogate_pair_counts() -> None:
    assert estimate_tokens("\ud800") == 1
    assert chars_for_tokens("\ud800" * 10, 5) == 5
