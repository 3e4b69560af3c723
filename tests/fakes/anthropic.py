"""The events of Anthropic's Messages API for a scripted reply. Pure."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from agent.models.scripted import split_words

Event = dict[str, Any]


def events(thinking: str, text: str, calls: list[Event], usage: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of one answer: thinking, a text, then tool calls {id, name, arguments}."""
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    begun = {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": 1,
    }
    message: Event = {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": "claude-fake",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": begun,
    }
    yield {"type": "message_start", "message": message}
    for index, (start, deltas) in enumerate(_blocks(thinking, text, calls)):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    ended = {"output_tokens": usage["completion_tokens"]}
    yield {"type": "message_delta", "delta": delta, "usage": ended}
    yield {"type": "message_stop"}


def _blocks(thinking: str, text: str, calls: list[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each content block: its start, and its deltas."""
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "sig-1"},
        ]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if text:
        texts = [{"type": "text_delta", "text": word} for word in split_words(text)]
        yield {"type": "text", "text": ""}, texts
    for call in calls:
        arguments = str(call["arguments"])
        half = len(arguments) // 2
        pieces = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in (arguments[:half], arguments[half:])
        ]
        yield {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}, pieces
