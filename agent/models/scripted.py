"""Streams a scripted answer like a model: word by word, tool calls in pieces, usage at the end. Pure."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

CHARS_PER_TOKEN = 4  # a rule of thumb; these tokens are never billed
_PIECES = 3
"""Number of pieces that a tool call's arguments are split into."""
_MAX_SPLIT_CHARS = 1_000
"""Longer arguments stay in one piece, because LangChain parses each piece, in quadratic time if it is not valid
JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """One tool call of a response."""

    name: str
    args: dict[str, Any]
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """One response of a model: text, tool calls, or both.

    Attributes:
        text: Its text.
        calls: Its tool calls.
        finish_reason: The provider's finish reason; "" = derived.
    """

    text: str = ""
    calls: tuple[ScriptedCall, ...] = field(default=())
    finish_reason: str = ""


def split_words(text: str) -> list[str]:
    """Split a text into words with their trailing spaces; joining them gives the text.

    >>> split_words(" Good morning, you.")
    [' ', 'Good ', 'morning, ', 'you.']
    """
    return re.findall(r"\S+\s*|\s+", text)


def stream_chunks(turn: ScriptedTurn, prompt: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
    """Yield the chunks of one response. The last one has the usage and the finish reason."""
    for word in split_words(turn.text):
        yield AIMessageChunk(content=word)
    for index, call in enumerate(turn.calls):
        for piece in _call_pieces(call, index):
            yield AIMessageChunk(content="", tool_call_chunks=[piece])
    reason = turn.finish_reason or ("tool_calls" if turn.calls else "stop")
    yield AIMessageChunk(
        content="",
        response_metadata={"finish_reason": reason},
        usage_metadata=_usage(turn, prompt),
        chunk_position="last",
    )


def _call_pieces(call: ScriptedCall, index: int) -> Iterator[ToolCallChunk]:
    yield tool_call_chunk(name=call.name, args="", id=call.id, index=index)
    text = json.dumps(call.args, ensure_ascii=False)
    step = -(-len(text) // _PIECES) if len(text) <= _MAX_SPLIT_CHARS else len(text)
    for start in range(0, len(text), step):
        yield tool_call_chunk(name=None, args=text[start : start + step], id=None, index=index)


def _usage(turn: ScriptedTurn, prompt: Sequence[BaseMessage]) -> UsageMetadata:
    read = sum(len(message.text) for message in prompt) // CHARS_PER_TOKEN + 1
    written = len(turn.text) + sum(len(json.dumps(call.args)) for call in turn.calls)
    out = written // CHARS_PER_TOKEN + 1
    return UsageMetadata(input_tokens=read, output_tokens=out, total_tokens=read + out)
