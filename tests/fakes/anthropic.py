"""Anthropic's Messages API: the events of a scripted reply, the requests that it refuses, and its prompt cache."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any
from uuid import uuid4

from agent.models.scripted import split_words

Event = dict[str, Any]

MAX_MARKS = 4
"""Maximum blocks with `cache_control` in a request."""

LOOKBACK_BLOCKS = 20
"""How many blocks before a mark the API searches for a cached prefix.

The source of both numbers: platform.claude.com/docs/en/build-with-claude/prompt-caching."""


def events(
    thinking: str,
    text: str,
    calls: list[Event],
    usage: dict[str, Any],
    reason: str | None = None,
    sources: Sequence[tuple[str, str]] = (),
) -> Iterator[Event]:
    """Yield the events of one answer: thinking, a text, then tool calls {id, name, arguments}.

    With `sources` (URL and title), the server has searched the web, and the text cites them.
    """
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
    for index, (start, deltas) in enumerate(_blocks(thinking, text, calls, sources)):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = reason or ("tool_use" if calls else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    ended = {"output_tokens": usage["completion_tokens"]}
    yield {"type": "message_delta", "delta": delta, "usage": ended}
    yield {"type": "message_stop"}


def whole_message(events: Iterable[Event]) -> Event:
    """Return the message that these events stream."""
    message: Event = {}
    for event in events:
        if event["type"] == "message_start":
            message = {**event["message"]}
        elif event["type"] == "content_block_start":
            message["content"] = [*message["content"], {**event["content_block"]}]
        elif event["type"] == "content_block_delta":
            _add_delta(message["content"][-1], event["delta"])
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] = {**message["usage"], **event["usage"]}
    for block in message["content"]:
        if arguments := block.pop("partial", ""):
            block["input"] = json.loads(arguments)
    return message


def _add_delta(block: Event, delta: Event) -> None:
    match delta["type"]:
        case "citations_delta":
            block["citations"] = [*block.get("citations", []), delta["citation"]]
        case "input_json_delta":
            block["partial"] = block.get("partial", "") + delta["partial_json"]
        case kind:
            name = kind.removesuffix("_delta")
            block[name] += delta[name]


def _blocks(
    thinking: str, text: str, calls: list[Event], sources: Sequence[tuple[str, str]]
) -> Iterator[tuple[Event, list[Event]]]:
    """Yield the start and the deltas of each content block."""
    if thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": thinking},
            {"type": "signature_delta", "signature": "sig-1"},
        ]
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if sources:
        yield from _search(sources)
    if text:
        texts: list[Event] = [{"type": "text_delta", "text": word} for word in split_words(text)]
        texts += [{"type": "citations_delta", "citation": _citation(*one)} for one in sources]
        yield {"type": "text", "text": ""}, texts
    for call in calls:
        arguments = str(call["arguments"])
        half = len(arguments) // 2
        pieces = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in (arguments[:half], arguments[half:])
        ]
        yield {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}, pieces


def request_problem(body: Mapping[str, Any]) -> str:
    """Return why the API refuses a request; "" = it accepts it.

    Users and assistants take turns, users first; texts are not empty; each `tool_use` has its result at the beginning
    of the next message; at most `MAX_MARKS` blocks have `cache_control`.
    """
    messages: list[dict[str, Any]] = body.get("messages", [])
    roles = [message["role"] for message in messages]
    if any(role != ("user", "assistant")[at % 2] for at, role in enumerate(roles)):
        return 'messages: roles must alternate between "user" and "assistant", but found ' + str(
            roles
        )
    if roles[-1:] != ["user"]:
        return "messages: the conversation must end with a user message"
    marks = sum("cache_control" in block for block in _blocks_of(body))
    if marks > MAX_MARKS:
        return f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {marks}."
    if any(block.get("type") == "text" and not block["text"].strip() for block in _blocks_of(body)):
        return "messages: text content blocks must contain non-whitespace text"
    problems = (
        _results_problem(*pair) for pair in pairwise([{"content": []}, *messages, {"content": []}])
    )
    return next(filter(None, problems), "")


def _results_problem(message: Mapping[str, Any], following: Mapping[str, Any]) -> str:
    called = {block["id"] for block in _content(message) if block["type"] == "tool_use"}
    kinds = [block["type"] for block in _content(following)]
    answered = [
        block["tool_use_id"] for block in _content(following) if block["type"] == "tool_result"
    ]
    if called - set(answered):
        return "messages: `tool_use` ids were found without `tool_result` blocks immediately after"
    if set(answered) - called or len(answered) > len(called):
        return "messages: unexpected `tool_use_id` found in `tool_result` blocks"
    if kinds[: len(answered)] != ["tool_result"] * len(answered):
        return "messages: `tool_result` blocks must come first in their message"
    return ""


class MarkedPromptCache:
    """Caches the prefixes of prompts that end at a mark, and looks for cached prefixes only near marks."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def cached_share(self, body: Mapping[str, Any]) -> float:
        """Return the cached share of a prompt, 0.0 to 1.0. Cache its prefixes up to its marks."""
        digest = blake2b(str(body.get("model")).encode(), digest_size=16)
        texts, digests, marks = [], [], []
        for at, block in enumerate(_blocks_of(body)):
            text = {k: v for k, v in block.items() if k not in ("cache_control", "role")}
            texts.append(json.dumps(text, ensure_ascii=False))
            digest.update(f"{block.get('role')} {texts[-1]}".encode())
            digests.append(digest.digest())
            if "cache_control" in block:
                marks.append(at)
        looked_at = (range(max(0, mark - LOOKBACK_BLOCKS), mark + 1) for mark in marks)
        ends = [at + 1 for near in looked_at for at in near if digests[at] in self._known]
        self._known.update(digests[mark] for mark in marks)
        cached = sum(map(len, texts[: max(ends, default=0)]))
        return cached / max(1, sum(map(len, texts)))


def _blocks_of(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a prompt in the order in which they are cached: tools, system, messages."""
    yield from body.get("tools", [])
    yield from _content({"content": body.get("system", [])})
    for message in body.get("messages", []):
        yield from ({"role": message["role"], **block} for block in _content(message))


def _content(message: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return a message's blocks. A plain text stands for one block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _search(sources: Sequence[tuple[str, str]]) -> Iterator[tuple[Event, list[Event]]]:
    ref = f"srvtoolu_{uuid4().hex}"
    query = {"type": "input_json_delta", "partial_json": '{"query": "news"}'}
    yield {"type": "server_tool_use", "id": ref, "name": "web_search", "input": {}}, [query]
    found = [
        {
            "type": "web_search_result",
            "url": url,
            "title": title,
            "encrypted_content": f"sealed {url}",
            "page_age": None,
        }
        for url, title in sources
    ]
    yield {"type": "web_search_tool_result", "tool_use_id": ref, "content": found}, []


def _citation(url: str, title: str) -> Event:
    return {
        "type": "web_search_result_location",
        "url": url,
        "title": title,
        "encrypted_index": f"index of {url}",
        "cited_text": "as it says there",
    }
