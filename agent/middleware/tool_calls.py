"""Finds and removes tool calls in a model's response, in every form that providers use. Pure."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from agent.models.failures import is_fallback
from agent.speakers import SILENCE

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk"})
"""Types of content blocks that are tool calls."""

_AROUND_SILENCE = " \t\r\n`*_\"'.[]()"
"""Formatting that models add to `SILENCE`."""


def remove_tool_calls(message: AIMessage, dropped: Callable[[ToolCall], bool]) -> AIMessage:
    """Remove some of a response's calls. The others keep their order, and the message keeps its id.

    A call that remains in `additional_kwargs` or in the content would be sent to the provider, which then requires its
    result. If nothing is removed, the same message is returned.
    """
    # By position, because a provider may repeat an id within one message.
    gone = [position for position, call in enumerate(message.tool_calls) if dropped(call)]
    if not gone:
        return message
    kept = [call for position, call in enumerate(message.tool_calls) if position not in set(gone)]
    kept_ids = {call["id"] for call in kept}
    ids = {message.tool_calls[position]["id"] for position in gone} - kept_ids
    raw = dict(message.additional_kwargs)
    if isinstance(raw.get("tool_calls"), list):
        raw["tool_calls"] = _without_ids(raw["tool_calls"], ids)
        if not raw["tool_calls"]:
            del raw["tool_calls"]
    return message.model_copy(
        update={
            "tool_calls": kept,
            "content": _without_call_blocks(message.content, ids),
            "additional_kwargs": raw,
        }
    )


def calls_tools(messages: Sequence[BaseMessage]) -> bool:
    """Return whether a response calls tools."""
    return any(isinstance(message, AIMessage) and message.tool_calls for message in messages)


def has_calls(message: AIMessage) -> bool:
    """Return whether an answer has calls in any form, valid or not."""
    extra = message.additional_kwargs
    return bool(
        message.tool_calls
        or message.invalid_tool_calls
        or extra.get("tool_calls")
        or extra.get("function_call")
    )


def is_empty_answer(message: BaseMessage) -> bool:
    """Return whether an answer has no text and no calls in any form."""
    return isinstance(message, AIMessage) and not message.text.strip() and not has_calls(message)


def without_tool_calls(message: BaseMessage, note: str = "") -> BaseMessage:
    """Remove all calls, valid or not. A response without text then gets a note. Failure reports stay unchanged."""
    if not isinstance(message, AIMessage) or is_fallback(message):
        return message
    bare = remove_tool_calls(message, lambda _: True).model_copy(update={"invalid_tool_calls": []})
    return append_note(bare, note) if note and not bare.text.strip() else bare


def is_silence(message: AIMessage) -> bool:
    r"""Return whether a response ends with `SILENCE`, with which the agent stays silent in a group.

    The bus hides that word only as the last line (bus/runs/replies.py), so nothing may follow it.

    >>> [is_silence(AIMessage(text)) for text in ("**NO_REPLY**", "Done.\n\nNO_REPLY", "It says NO_REPLY")]
    [True, True, False]
    """
    last = message.text.rstrip().rpartition("\n")[2]
    return last.strip(_AROUND_SILENCE) == SILENCE


def append_note(message: AIMessage, note: str) -> AIMessage:
    """Return a response with a paragraph appended, unless it is silence."""
    if is_silence(message):
        return message
    content: str | list[str | dict[Any, Any]]
    if isinstance(message.content, str):
        content = f"{message.content}\n\n{note}" if message.content else note
    else:
        content = [*message.content, {"type": "text", "text": note}]
    return message.model_copy(update={"content": content})


def _without_call_blocks(
    content: str | list[str | dict[Any, Any]], ids: Collection[str | None]
) -> str | list[str | dict[Any, Any]]:
    if isinstance(content, str):
        return content
    return [
        block
        for block in content
        if isinstance(block, str)
        or block.get("type") not in _CALL_BLOCKS
        or not _has_id(block, ids)
    ]


def _without_ids(raw: list[Any], ids: Collection[str | None]) -> list[Any]:
    return [call for call in raw if not (isinstance(call, dict) and _has_id(call, ids))]


def _has_id(call: dict[Any, Any], ids: Collection[str | None]) -> bool:
    return call.get("call_id") in ids if call.get("call_id") else call.get("id") in ids
