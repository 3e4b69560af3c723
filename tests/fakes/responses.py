"""The events of OpenAI's Responses API for a scripted reply. Pure."""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from uuid import uuid4

from agent.models.scripted import split_words

Event = dict[str, Any]


def events(
    model: str,
    text: str,
    calls: list[Event],
    usage: dict[str, Any],
    sources: Sequence[tuple[str, str]] = (),
) -> Iterator[Event]:
    """Yield the events of one answer: a message with `text`, then function calls {id, name, arguments}.

    With `sources` (URL and title), the server has searched the web, and the text cites them.
    """
    begun, output = _response(model), list[Event]()
    parts: list[Iterator[Event]] = [_search()] if sources else []
    parts += [_message(text, sources)] if text else []
    parts += [_call(call) for call in calls]
    number = count()
    yield {"type": "response.created", "response": begun, "sequence_number": next(number)}
    for index, part in enumerate(parts):
        for event in part:
            if event["type"] == "response.output_item.done":
                output.append(event["item"])
            yield {**event, "output_index": index, "sequence_number": next(number)}
    done = {
        **begun,
        "output": output,
        "status": "completed",
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage.get("prompt_tokens_details", {"cached_tokens": 0}),
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }
    yield {"type": "response.completed", "response": done, "sequence_number": next(number)}


def frame(event: Event) -> bytes:
    """Return an event as it goes over the wire."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _search() -> Iterator[Event]:
    item = {"id": f"ws_{uuid4().hex}", "type": "web_search_call"}
    yield {"type": "response.output_item.added", "item": {**item, "status": "in_progress"}}
    for state in ("in_progress", "searching", "completed"):
        yield {"type": f"response.web_search_call.{state}", "item_id": item["id"]}
    action = {"type": "search", "query": "news"}
    done = {**item, "status": "completed", "action": action}
    yield {"type": "response.output_item.done", "item": done}


def _message(text: str, sources: Sequence[tuple[str, str]]) -> Iterator[Event]:
    ref = f"msg_{uuid4().hex}"
    item = {"id": ref, "type": "message", "role": "assistant", "status": "in_progress"}
    where = {"item_id": ref, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    yield {"type": "response.output_item.added", "item": {**item, "content": []}}
    yield {"type": "response.content_part.added", **where, "part": part}
    for word in split_words(text):
        yield {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
    cited = [
        {"type": "url_citation", "url": u, "title": t, "start_index": 0, "end_index": len(text)}
        for u, t in sources
    ]
    for number, one in enumerate(cited):
        numbered = {"annotation": one, "annotation_index": number}
        yield {"type": "response.output_text.annotation.added", **where, **numbered}
    yield {"type": "response.output_text.done", **where, "text": text, "logprobs": []}
    whole = {**part, "text": text, "annotations": cited}
    yield {"type": "response.content_part.done", **where, "part": whole}
    done = {**item, "status": "completed", "content": [whole]}
    yield {"type": "response.output_item.done", "item": done}


def _call(call: Event) -> Iterator[Event]:
    ref, text = f"fc_{uuid4().hex}", str(call["arguments"])
    item = {"id": ref, "type": "function_call", "call_id": call["id"], "name": call["name"]}
    begun = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", "item": begun}
    half = len(text) // 2
    for piece in (text[:half], text[half:]):
        yield {"type": "response.function_call_arguments.delta", "item_id": ref, "delta": piece}
    final = {"item_id": ref, "arguments": text, "name": call["name"]}
    yield {"type": "response.function_call_arguments.done", **final}
    done = {**item, "status": "completed", "arguments": text}
    yield {"type": "response.output_item.done", "item": done}


def _response(model: str) -> Event:
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": 1,
        "status": "in_progress",
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }
