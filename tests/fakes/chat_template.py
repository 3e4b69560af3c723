"""The checks of strict chat templates: Mistral's (with its API's order of roles), Gemma's and Qwen's, combined.

Sources: the `raise_exception` lines of Mistral-7B-Instruct-v0.3's and Gemma's chat_template.jinja, which vLLM and
llama.cpp run, and mistral-common's request validator.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

ALTERNATE = (
    "After the optional system message, conversation roles must alternate "
    "user/assistant/user/assistant/..."
)

_FOLLOW = {
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("user",),
    "calls": ("tool",),
    "tool": ("tool", "assistant", "calls"),
}
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def template_problem(messages: Sequence[dict[str, Any]]) -> str:
    """Return why a strict server rejects a conversation; "" = it accepts it."""
    kinds = [_kind(message) for message in messages]
    problems = (
        _order_problem(kinds),
        *map(_content_problem, messages),
        *map(_calls_problem, messages),
        _results_problem(messages),
    )
    return next(filter(None, problems), "")


def _kind(message: dict[str, Any]) -> str:
    return "calls" if message.get("tool_calls") else str(message["role"])


def _order_problem(kinds: Sequence[str]) -> str:
    if "system" in kinds[1:]:
        return "System message must be at the beginning."
    said = [kind for kind in kinds if kind in ("user", "assistant")]
    if any(kind != ("user", "assistant")[at % 2] for at, kind in enumerate(said)):
        return ALTERNATE
    for before, after in zip(kinds, [*kinds[1:], "the end"], strict=True):
        if after == "the end":
            ends = before in ("user", "tool")
            return "" if ends else f"Expected last role User or Tool for serving but got {before}"
        if after not in (*_FOLLOW[before], *(("calls",) if before == "user" else ())):
            return f"Unexpected role '{after}' after role '{before}'"
    return "A conversation must have at least one message."


def _content_problem(message: dict[str, Any]) -> str:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    has_content = any(
        one.get("type") != "text" or (one.get("text") or "").strip() for one in blocks
    )
    needs_some = message["role"] in ("user", "system") or _kind(message) == "assistant"
    return (
        f"A message of {message['role']} has no content." if needs_some and not has_content else ""
    )


def _calls_problem(message: dict[str, Any]) -> str:
    for call in message.get("tool_calls") or ():
        try:
            is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
        except ValueError:
            is_object = False
        if not is_object:
            return "Tool call arguments must be a JSON object."
        if not _ID.fullmatch(call["id"]) or not _NAME.fullmatch(call["function"]["name"]):
            return f"Invalid tool call id or name: {call['id']!r}, {call['function']['name']!r}"
    return ""


def _results_problem(messages: Sequence[dict[str, Any]]) -> str:
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in expected:
                return f"Unexpected tool call id {message['tool_call_id']} in tool results"
            expected.remove(message["tool_call_id"])
        elif expected:
            return "Not the same number of function calls and responses"
        else:
            expected = [call["id"] for call in message.get("tool_calls") or ()]
    return "Not the same number of function calls and responses" if expected else ""
