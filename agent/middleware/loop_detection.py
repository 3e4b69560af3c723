"""Detects a turn that repeats its tool calls: warns the model, then makes it answer."""

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall
from typing_extensions import override

from agent.config import LoopDetectionConfig
from agent.locales import AgentMessages
from agent.middleware.localization import wording_for
from agent.middleware.tool_calls import append_note, remove_tool_calls
from agent.models.failures import is_fallback
from agent.state import ThreadState
from agent.user_messages import LOOP_WARNING

logger = logging.getLogger(__name__)

REPEATED_WARNING = (
    "You have made the same tool calls {count} times in this turn, and their results will not change. "
    "Do something else, or answer with what you have."
)
FREQUENT_WARNING = (
    "You have called {tool} {count} times in this turn. Answer with what you have, unless the next calls are "
    "truly needed."
)
STOP_MESSAGE = (
    "No tool can be called any more in this turn: you were going in circles. Answer now with what you have, "
    "and say what is missing."
)

Request = ModelRequest[Any]
Response = ModelResponse[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCounts:
    """What was called in this turn so far.

    Attributes:
        sets: How often each set of calls was made, within the window.
        tools: How often each tool was called.
        latest: The last set.
    """

    sets: Counter[str]
    tools: Counter[str]
    latest: str = ""


class LoopDetectionMiddleware(AgentMiddleware[ThreadState, Any]):
    """Counts the calls of the turn in the thread's own messages: nothing is remembered here, nothing can mix up.

    The warning goes into the request alone, behind the last result: between a call and its result no provider takes
    it, and in the thread nobody should read it. An answer that goes beyond a limit is not carried out; the model is
    asked once more, with no tool to call.
    """

    def __init__(self, config: LoopDetectionConfig) -> None:
        super().__init__()
        self._config = config

    @override
    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        found = count_calls(request.state["messages"], self._config.window_size)
        response = await handler(self._with_warning(request, found))
        if not self._exceeds_limit(response, found):
            return response
        return _final_response(
            response, await handler(_without_tools(request)), wording_for(request)
        )

    def _with_warning(self, request: Request, found: CallCounts) -> Request:
        count = found.sets[found.latest] if found.latest else 0
        if count >= self._config.warn_threshold:
            return _append_warning(request, REPEATED_WARNING.format(count=count))
        tool, often = next(iter(found.tools.most_common(1)), ("", 0))
        if often >= self._config.tool_freq_warn:
            return _append_warning(request, FREQUENT_WARNING.format(tool=tool, count=often))
        return request

    def _exceeds_limit(self, response: Response, found: CallCounts) -> bool:
        calls = [call for message in _ai_messages(response) for call in message.tool_calls]
        if not calls:
            return False
        often = found.tools + Counter(call["name"] for call in calls)
        is_beyond = (
            found.sets[_calls_key(calls)] + 1 >= self._config.hard_limit
            or max(often[call["name"]] for call in calls) > self._config.tool_freq_hard_limit
        )
        if is_beyond:
            logger.warning("Loop detected in calls of %.80s: forcing an answer", calls[0]["name"])
        return is_beyond


def count_calls(messages: Sequence[AnyMessage], window: int) -> CallCounts:
    """Count the calls since the last human message.

    >>> call = {"name": "ls", "args": {"path": "a", "depth": 1}, "id": "1"}
    >>> same = {"name": "ls", "args": {"depth": 1, "path": "a"}, "id": "2"}
    >>> said = [HumanMessage("x"), AIMessage("", tool_calls=[call]), AIMessage("", tool_calls=[same])]
    >>> max(count_calls(said, 20).sets.values()), count_calls(said, 20).tools["ls"]
    (2, 2)
    """
    turn: list[list[ToolCall]] = []
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, AIMessage) and message.tool_calls:
            turn.append(message.tool_calls)
    sets = [_calls_key(calls) for calls in turn[:window]]
    return CallCounts(
        sets=Counter(sets),
        tools=Counter(call["name"] for calls in turn for call in calls),
        latest=sets[0] if sets else "",
    )


def _calls_key(calls: Iterable[ToolCall]) -> str:
    """Return the same text for the same calls, in whatever order they and their arguments are."""
    told = (json.dumps([c["name"], c["args"]], sort_keys=True, default=str) for c in calls)
    return "\n".join(sorted(told))


def _append_warning(request: Request, word: str) -> Request:
    return request.override(messages=[*request.messages, HumanMessage(word, name=LOOP_WARNING)])


def _without_tools(request: Request) -> Request:
    """Return the request without tools. Anthropic's API wants them named where the history has calls, so they stay.

    Its class takes the choice as a mapping, the others as a word.
    """
    kinds = type(request.model).__mro__
    is_anthropic = any("Anthropic" in kind.__name__ for kind in kinds)
    choice: Any = {"type": "none"} if is_anthropic else "none"
    return _append_warning(request, STOP_MESSAGE).override(tool_choice=choice)


def _final_response(circling: Response, final: Response, words: AgentMessages) -> Response:
    """Return the last answer without calls, behind what the model said with the calls that are dropped."""
    said = [_without_calls(message) for message in _ai_messages(circling) if message.text.strip()]
    result = [_without_calls(message) for message in _ai_messages(final)]
    if not any(message.text.strip() for message in result):
        result = [append_note(message, words.loop_detected) for message in result[-1:]]
    return ModelResponse(result=[*said, *result])


def _without_calls(message: AIMessage) -> AIMessage:
    if is_fallback(message):
        return message
    return remove_tool_calls(message, lambda _: True).model_copy(update={"invalid_tool_calls": []})


def _ai_messages(response: Response) -> list[AIMessage]:
    return [message for message in response.result if isinstance(message, AIMessage)]
