"""Gives each tool call of a request an id that every provider accepts. Pure.

Some servers restart their ids with each response, or use long ids. Anthropic rejects ids that repeat in a thread, and
OpenAI rejects ids of more than 40 characters, so the thread could not continue with another model.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from agent.models.answers import ID_CHARS, PROVIDER_FIELDS

MAX_CHARS = 40
"""Longest id that OpenAI accepts, characters."""

_ID_KEYS = ("id", "call_id")
"""Keys that hold a call's id, in content blocks and in the provider's form."""


def unique_call_ids(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with unique, short call ids; the same list if nothing changes.

    The same history always gets the same ids, so that providers can cache requests by prefix.

    Args:
        messages: The history; each message with calls is followed by the results of the calls.
    """
    seen: set[str] = set()
    renamed: dict[str, str] = {}
    result: list[AnyMessage] = []
    for message in messages:
        # Compare `type` where possible: isinstance checks of messages are slow, and a thread may have thousands.
        if message.type == "human":
            result.append(message)
        elif isinstance(message, AIMessage) and message.tool_calls:
            renamed = _new_ids(message, seen)
            result.append(_with_ids(message, renamed) if renamed else message)
        elif renamed and isinstance(message, ToolMessage):
            call_id = renamed.get(message.tool_call_id, message.tool_call_id)
            result.append(message.model_copy(update={"tool_call_id": call_id}))
        else:
            result.append(message)
    return messages if all(a is b for a, b in zip(result, messages, strict=True)) else result


def _new_ids(message: AIMessage, seen: set[str]) -> dict[str, str]:
    """Return the new ids of a message's calls by their old ids, and add all of them to `seen`."""
    renamed: dict[str, str] = {}
    for call in message.tool_calls:
        call_id = call["id"] or ""
        if call_id in seen or len(call_id) > MAX_CHARS:
            renamed[call_id] = _unused_id(call_id, seen)
        seen.add(renamed.get(call_id, call_id))
    return renamed


def _unused_id(call_id: str, seen: set[str]) -> str:
    number = 0
    while True:
        number += 1
        digest = hashlib.sha256(f"{call_id}\0{number}".encode("utf-8", "replace")).hexdigest()
        if (made := digest[:ID_CHARS]) not in seen:
            return made


def _with_ids(message: AIMessage, renamed: dict[str, str]) -> AIMessage:
    """Return the message with new call ids, in every form that is sent to a provider."""

    def rename(one: Any) -> Any:  # noqa: ANN401 - JSON
        if not isinstance(one, dict):
            return one
        return {**one, **{key: renamed[one[key]] for key in _ID_KEYS if one.get(key) in renamed}}

    content, raw = message.content, dict(message.additional_kwargs)
    if isinstance(raw.get("tool_calls"), list):
        raw["tool_calls"] = _each(raw["tool_calls"], rename)
    fields = raw.get(PROVIDER_FIELDS)
    if isinstance(fields, dict) and isinstance(of_calls := fields.get("calls"), dict):
        raw[PROVIDER_FIELDS] = {
            **fields,
            "calls": {renamed.get(call_id, call_id): one for call_id, one in of_calls.items()},
        }
    return message.model_copy(
        update={
            "tool_calls": _each(message.tool_calls, rename),
            "content": content if isinstance(content, str) else _each(content, rename),
            "additional_kwargs": raw,
        }
    )


def _each(items: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    return [change(one) for one in items]
