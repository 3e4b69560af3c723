"""Repairs the history in requests: each tool call gets its result, and consecutive answers are joined.

A turn that is canceled between a call and its result leaves a call without a result, and providers reject every later
request with such a history. Strict chat templates of vLLM also reject consecutive answers, which reminders and forced
answers leave behind. Call ids and blank texts that a provider would reject are replaced. The repair changes only the
request, not the state.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage, merge_content
from typing_extensions import override

from agent.middleware.blank_texts import without_blank_texts
from agent.middleware.call_ids import unique_call_ids
from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_call_repair import has_valid_calls, invalid_call_text, repair_message
from agent.state import ThreadState

INTERRUPTED = "[Tool call was interrupted and did not return a result.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExpectedResult:
    """A call that needs a result. `invalid` says why it could not run; None = it was valid."""

    id: str
    name: str
    invalid: str | None = None


class DanglingToolCallMiddleware(AgentMiddleware[ThreadState, Any]):
    """Passes on a repaired copy of the request, or the same request if nothing is wrong."""

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        return await handler(_repair_request(request))


def _repair_request(request: ModelRequest[Any]) -> ModelRequest[Any]:
    messages = without_blank_texts(unique_call_ids(repair_history(request.messages)))
    return request if messages is request.messages else request.override(messages=messages)


def repair_history(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the history with the results of each message's calls right after it, in call order.

    Consecutive answers become one.
    A result belongs to the nearest earlier message that has a call with its id, because ids may repeat in later turns.
    Results without a call are dropped. A valid history is returned as the same object.
    """
    if _is_valid(messages):
        return messages
    named = [_with_valid_calls(message) for message in messages]
    results = _results_by_caller(named)
    fixed: list[AnyMessage] = []
    for position, message in enumerate(named):
        if isinstance(message, ToolMessage):
            continue  # placed after its call, or dropped if it has none
        if isinstance(message, AIMessage) and fixed and isinstance(fixed[-1], AIMessage):
            fixed[-1] = _merge_answers(fixed[-1], message)
        else:
            fixed.append(message)
        if isinstance(message, AIMessage):
            fixed.extend(_results_for(message, results[position]))
    same = len(fixed) == len(messages) and all(a is b for a, b in zip(fixed, messages, strict=True))
    return messages if same else fixed


def _is_valid(messages: Sequence[AnyMessage]) -> bool:
    """Return whether each message's results follow it in order, and no answer follows another.

    Almost every history is valid, and this check takes a tenth of a repair's time. Threads may have thousands of
    messages.
    """
    open_calls: list[str] = []
    previous = ""
    for message in messages:
        # Compare `type` where possible: isinstance checks of messages are slow.
        kind = message.type
        if message.type == "tool":
            if not open_calls or open_calls.pop() != message.tool_call_id:
                return False
        elif open_calls or kind == previous == "ai":
            return False
        elif kind != "human" and isinstance(message, AIMessage) and _may_call(message):
            if not has_valid_calls(message):
                return False
            open_calls = [call.id for call in reversed(_expected_results(message))]
        previous = kind
    return not open_calls


def _merge_answers(first: AIMessage, second: AIMessage) -> AIMessage:
    r"""Merge two answers. The first one has no calls; otherwise their results would follow it.

    >>> _merge_answers(AIMessage("Half.", id="1"), AIMessage("All.", id="2")).content
    'Half.\n\nAll.'
    """
    are_texts = isinstance(first.content, str) and isinstance(second.content, str)
    gap = "\n\n" if are_texts and first.content and second.content else ""
    content = merge_content(first.content, gap, second.content)
    return second.model_copy(update={"content": content, "id": first.id})


def _with_valid_calls(message: AnyMessage) -> AnyMessage:
    """Give a message's calls ids and names. Messages that clients write into threads may lack them."""
    if not isinstance(message, AIMessage) or has_valid_calls(message):
        return message
    repaired_message = repair_message(message)
    return repaired_message if isinstance(repaired_message, AIMessage) else message


def _may_call(message: AIMessage) -> bool:
    return bool(
        message.tool_calls
        or message.invalid_tool_calls
        or message.additional_kwargs.get("tool_calls")
    )


def _results_by_caller(messages: Sequence[AnyMessage]) -> dict[int, dict[str, ToolMessage]]:
    """Return the results by position of the calling message and by call id. Of duplicates, keep the first."""
    caller: dict[str, int] = {}
    results: dict[int, dict[str, ToolMessage]] = defaultdict(dict)
    for position, message in enumerate(messages):
        if isinstance(message, AIMessage):
            caller.update((call.id, position) for call in _expected_results(message))
        elif isinstance(message, ToolMessage) and message.tool_call_id in caller:
            results[caller[message.tool_call_id]].setdefault(message.tool_call_id, message)
    return results


def _results_for(message: AIMessage, results: dict[str, ToolMessage]) -> Iterator[ToolMessage]:
    for call in _expected_results(message):
        yield results.get(call.id) or _placeholder(call)


def _expected_results(message: AIMessage) -> list[_ExpectedResult]:
    calls = [
        _ExpectedResult(id=call["id"], name=call["name"] or "unknown_tool")
        for call in message.tool_calls
        if call["id"]
    ]
    calls += [
        _ExpectedResult(
            id=bad["id"],
            name=bad["name"] or "unknown_tool",
            invalid=str(bad["error"] or ""),
        )
        for bad in message.invalid_tool_calls
        if bad["id"]
    ]
    if not calls:
        calls = list(_provider_calls(message.additional_kwargs.get("tool_calls")))
    return list({call.id: call for call in calls}.values())


def _provider_calls(raw: object) -> Iterator[_ExpectedResult]:
    """Parse calls in the provider's form, which some model classes keep unparsed."""
    for call in raw if isinstance(raw, list) else ():
        if isinstance(call, dict) and isinstance(call.get("id"), str) and call["id"]:
            function = call.get("function")
            name = function.get("name") if isinstance(function, dict) else None
            yield _ExpectedResult(id=call["id"], name=str(name or "unknown_tool"))


def _placeholder(call: _ExpectedResult) -> ToolMessage:
    return ToolMessage(
        content=INTERRUPTED if call.invalid is None else invalid_call_text(call.name, call.invalid),
        name=call.name,
        tool_call_id=call.id,
        status="error",
    )
