"""Repairs a model's response before anything stores it: its text, and the names, ids and arguments of its tool calls.

Models sometimes make calls with invalid JSON, without an id, or with a name that providers reject. Such a response
would end the turn without an answer, lose the result, or be rejected by the provider in every later request of the
thread.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    ToolMessage,
)
from typing_extensions import override

from agent.clean_values import MAX_DEPTH, NestedTooDeep, clean_json, read_json
from agent.middleware.clean_messages import clean_message
from agent.middleware.handler_types import ModelHandler, ToolHandler, ToolResult
from agent.middleware.tool_calls import remove_tool_calls
from agent.models.answers import ID_CHARS, TAGGED_THINKING
from agent.models.failures import is_fallback
from agent.models.finish_reasons import finish_kind
from agent.models.thinking_tags import split_thinking
from agent.state import ThreadState

UNREADABLE_CALLS_KEY = "unreadable_calls"
"""Key of a response's `additional_kwargs`: reasons why calls are not run, by call id."""

UNKNOWN_TOOL = "unknown_tool"
NAME_CHARS = 64
"""Longest tool name that providers accept, characters."""

MAX_ARGUMENT_CHARS = 500_000
"""Maximum length of a call's arguments, characters of JSON. Every later request of the thread contains them."""

CUT_OFF = (
    "[Tool call was not run: your message reached the length limit, so the call may be incomplete. Write less per "
    "message; write a file in several parts, using append after the first.]"
)

NESTED_TOO_DEEP = (
    f"[Tool call was not run: its arguments are nested more than {MAX_DEPTH} levels deep. Make them flat, or write "
    "them into a file.]"
)
TOO_LONG = f"[Tool call was not run: its arguments have more than {MAX_ARGUMENT_CHARS} characters. Use several calls.]"
NO_OBJECT = "They must be one JSON object."

DETAIL_CHARS = 500
QUOTED_CHARS = 60
"""Number of characters of invalid JSON to quote before and after an error."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS}}}")


class ToolCallRepairMiddleware(AgentMiddleware[ThreadState, Any]):
    """Repairs each response. A call that cannot run gets the reason as its result.

    Thinking between tags is removed from the text. Values that a store or server rejects are replaced. A call with
    invalid JSON becomes a call without arguments and does not run. The last call of a response that was truncated at
    its length limit does not run either. The model reads the reason and can correct the call. Valid calls stay
    unchanged.
    """

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        return _repair_response(await handler(request))

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        return _rejection(request) or await handler(request)


def _repair_response(response: ModelResponse[Any]) -> ModelResponse[Any]:
    result = [repair_message(message) for message in response.result]
    if all(new is old for new, old in zip(result, response.result, strict=True)):
        return response
    return ModelResponse(result=result, structured_response=response.structured_response)


def repair_message(message: BaseMessage) -> BaseMessage:
    """Return a response whose calls can be run, answered and sent to any provider; the same object if it is valid."""
    if not isinstance(message, AIMessage) or is_fallback(message):
        return message
    message = _without_thinking(clean_message(message))
    ids: set[str] = set()
    read = list(_parse_calls(message))
    calls = [_with_valid_name(one.call, ids) for one in read]
    odd = [one.call for one, call in zip(read, calls, strict=True) if one.call is not call]
    odd += [one.call for one in read if one.was_invalid]
    unreadable = {
        str(call["id"]): one.reason for one, call in zip(read, calls, strict=True) if one.reason
    }
    if not (odd or unreadable):
        return message
    whole = message.model_copy(
        update={"tool_calls": [one.call for one in read], "invalid_tool_calls": []}
    )
    # Remove the other forms of repaired calls, or they would be sent to the provider.
    bare = remove_tool_calls(whole, lambda call: any(call is one for one in odd))
    marks = {**bare.additional_kwargs, **({UNREADABLE_CALLS_KEY: unreadable} if unreadable else {})}
    return bare.model_copy(update={"tool_calls": calls, "additional_kwargs": marks})


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedCall:
    """A call as the model made it. `reason` says why it is not run; None = it is run."""

    call: ToolCall
    reason: str | None = None
    was_invalid: bool = False


def _parse_calls(message: AIMessage) -> Iterator[_ParsedCall]:
    cut = finish_kind(message) == "length"
    last = len(message.tool_calls) - 1 if cut and not message.invalid_tool_calls else None
    for position, call in enumerate(message.tool_calls):
        yield _with_valid_arguments(call, CUT_OFF if position == last else None)
    for bad in message.invalid_tool_calls:
        yield _read_again(bad, is_cut=cut)


def _with_valid_arguments(call: ToolCall, reason: str | None) -> _ParsedCall:
    args = call["args"]
    try:
        cleaned = clean_json(args)
    except NestedTooDeep:
        return _ParsedCall(call={**call, "args": {}}, reason=NESTED_TOO_DEEP, was_invalid=True)
    if len(json.dumps(cleaned, ensure_ascii=False)) > MAX_ARGUMENT_CHARS:
        return _ParsedCall(call={**call, "args": {}}, reason=TOO_LONG, was_invalid=True)
    if cleaned is args:
        return _ParsedCall(call=call, reason=reason)
    return _ParsedCall(call={**call, "args": cleaned}, reason=reason, was_invalid=True)


def _read_again(bad: InvalidToolCall, *, is_cut: bool) -> _ParsedCall:
    """Parse arguments that are not a JSON object. They may be an object inside a JSON string, or empty."""
    name = bad["name"] or UNKNOWN_TOOL
    call = ToolCall(type="tool_call", id=bad["id"], name=name, args={})
    found, error = _parsed(bad["args"])
    if isinstance(found, str):
        found, error = _parsed(found)
    if isinstance(found, dict) and not is_cut:
        call["args"] = found
        return replace(_with_valid_arguments(call, None), was_invalid=True)
    if found is None and not error:
        return _ParsedCall(call=call, was_invalid=True)
    reason = invalid_call_text(name, error or NO_OBJECT)
    return _ParsedCall(call=call, reason=CUT_OFF if is_cut else reason, was_invalid=True)


def _parsed(text: str | None) -> tuple[Any, str]:
    """Return a JSON value, or the reason why it cannot be parsed."""
    try:
        return read_json(text or "null"), ""
    except json.JSONDecodeError as error:
        return None, _describe_error(error)
    except ValueError as error:
        return None, str(error)


def _describe_error(error: json.JSONDecodeError) -> str:
    r"""Describe a JSON error and quote the text around it, because the thread does not keep the arguments.

    >>> try:
    ...     json.loads('{"a": 1 "b": 2}')
    ... except json.JSONDecodeError as error:
    ...     print(_describe_error(error))
    Expecting ',' delimiter at line 1, column 9 (character 8): {"a": 1 <<here>>"b": 2}
    """
    text, at = error.doc, error.pos
    before, after = text[max(0, at - QUOTED_CHARS) : at], text[at : at + QUOTED_CHARS]
    place = f"line {error.lineno}, column {error.colno} (character {at})"
    return f"{error.msg} at {place}: {before}<<here>>{after}"


def _without_thinking(message: AIMessage) -> AIMessage:
    """Return a message without tagged thinking, which some servers leave in the text."""
    if not isinstance(message.content, str):
        return message
    answer, thinking = split_thinking(message.content)
    if answer == message.content:
        return message
    before = message.additional_kwargs.get(TAGGED_THINKING) or ""
    kept = {**message.additional_kwargs, TAGGED_THINKING: f"{before}{thinking}"}
    return message.model_copy(update={"content": answer, "additional_kwargs": kept})


def _with_valid_name(call: ToolCall, ids: set[str]) -> ToolCall:
    """Return a call with a valid name and a unique id; the same call if it has both."""
    name = _ODD.sub("_", call["name"] or "")[:NAME_CHARS] or UNKNOWN_TOOL
    call_id = call["id"]
    if not call_id or call_id in ids:
        call_id = uuid4().hex[:ID_CHARS]
    ids.add(call_id)
    same = name == call["name"] and call_id == call["id"]
    return call if same else {**call, "name": name, "id": call_id}


def _rejection(request: ToolCallRequest) -> ToolMessage | None:
    call_id = request.tool_call["id"] or ""
    reason = _rejection_reasons(request.state).get(call_id)
    if reason is None:
        return None
    return ToolMessage(
        content=reason, name=request.tool_call["name"], tool_call_id=call_id, status="error"
    )


def _rejection_reasons(state: Any) -> dict[str, str]:  # noqa: ANN401 - LangGraph's own type
    """Return the rejection reasons from the response whose calls are being run."""
    messages: list[AnyMessage] = state.get("messages") or [] if isinstance(state, dict) else []
    answer = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
    found: dict[str, str] = (
        answer.additional_kwargs.get(UNREADABLE_CALLS_KEY) or {} if answer else {}
    )
    return found


def has_valid_calls(message: AIMessage) -> bool:
    """Return whether all calls of a response have an id and a valid name."""
    # `all` would take twice as long, and this runs for whole threads.
    for call in message.tool_calls:  # noqa: SIM110
        if not (call["id"] and _NAME.fullmatch(call["name"] or "")):
            return False
    return True


def invalid_call_text(name: str, detail: str | None) -> str:
    """Return the result of a call with invalid arguments."""
    text = "[Tool call was not run: its arguments were not valid JSON."
    if detail:
        text += f" {detail[:DETAIL_CHARS]}"
    if name == "write_file":
        text += " Write the file in smaller parts, using append after the first."
    return text + "]"
