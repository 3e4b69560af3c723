"""Detects turns that repeat tool calls: warns the model, then makes it answer."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, ToolCall
from typing_extensions import override

from agent.config import LoopDetectionConfig
from agent.locales import AgentMessages
from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.system_message import add_reminder
from agent.middleware.tool_calls import without_tool_calls
from agent.state import ThreadState
from agent.user_messages import HUMAN, LOOP_WARNING

log = logging.getLogger(__name__)

REPEATED_WARNING = (
    "You made the same tool call {count} times in this turn, and the results will not change. "
    "Try something else, or answer with what you have."
)
FREQUENT_WARNING = (
    "You called {tool} {count} times in this turn. Answer with what you have unless further calls are "
    "really needed."
)
STOP_MESSAGE = (
    "Tools are disabled for the rest of this turn because you repeated the same calls. Answer now with what you "
    "have, and say what is missing."
)

Request = ModelRequest[Any]
Response = ModelResponse[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCounts:
    """The tool calls of a turn.

    Attributes:
        same: Number of messages with each call (tool and arguments), within the window.
        tools: Number of calls per tool.
        latest: The calls of the last message.
    """

    same: Counter[str]
    tools: Counter[str]
    latest: frozenset[str] = frozenset()


class LoopDetectionMiddleware(AgentMiddleware[ThreadState, Any]):
    """Detects loops by counting the turn's calls in the thread's messages. So it has no state of its own.

    The warning is only in the request, so that people do not see it in the thread. It follows the last result, because
    providers reject a message between a call and its result. Calls beyond a limit are not run; the model is called
    once more, without tools.
    """

    def __init__(self, config: LoopDetectionConfig) -> None:
        super().__init__()
        self._config = config

    @override
    async def awrap_model_call(self, request: Request, handler: ModelHandler) -> Response:
        found = count_calls(request.state["messages"], self._config.window_size)
        response = await handler(self._with_warning(request, found))
        if not self._exceeds_limit(response, found):
            return response
        return _final_response(
            response, await handler(_without_tools(request)), localized_messages(request)
        )

    def _with_warning(self, request: Request, found: CallCounts) -> Request:
        count = max((found.same[call] for call in found.latest), default=0)
        if count >= self._config.warn_threshold:
            return add_reminder(request, REPEATED_WARNING.format(count=count), LOOP_WARNING)
        tool, often = next(iter(found.tools.most_common(1)), ("", 0))
        if 0 < self._config.tool_freq_warn <= often:
            warning = FREQUENT_WARNING.format(tool=tool, count=often)
            return add_reminder(request, warning, LOOP_WARNING)
        return request

    def _exceeds_limit(self, response: Response, found: CallCounts) -> bool:
        calls = [call for message in _ai_messages(response) for call in message.tool_calls]
        if not calls:
            return False
        often = found.tools + Counter(call["name"] for call in calls)
        most = self._config.tool_freq_hard_limit
        is_beyond = max(
            found.same[_call_key(call)] for call in calls
        ) + 1 >= self._config.hard_limit or 0 < most < max(often[call["name"]] for call in calls)
        if is_beyond:
            log.warning("Loop detected in calls of %.80s: forcing an answer", calls[0]["name"])
        return is_beyond


def count_calls(messages: Sequence[AnyMessage], window: int) -> CallCounts:
    """Count the calls since the last human message.

    >>> from langchain_core.messages import HumanMessage
    >>> call = {"name": "ls", "args": {"path": "a", "depth": 1}, "id": "1"}
    >>> same = {"name": "ls", "args": {"depth": 1, "path": "a"}, "id": "2"}
    >>> history = [HumanMessage("x"), AIMessage("", tool_calls=[call]), AIMessage("", tool_calls=[same])]
    >>> max(count_calls(history, 20).same.values()), count_calls(history, 20).tools["ls"]
    (2, 2)
    """
    turn: list[list[ToolCall]] = []
    for message in reversed(messages):
        if message.type == HUMAN:
            break
        if message.type == "ai" and message.tool_calls:
            turn.append(message.tool_calls)
    keys = [frozenset(map(_call_key, calls)) for calls in turn[:window]]
    return CallCounts(
        same=Counter(key for message in keys for key in message),
        tools=Counter(call["name"] for calls in turn for call in calls),
        latest=keys[0] if keys else frozenset(),
    )


def _call_key(call: ToolCall) -> str:
    """Return a key that is equal for equal calls, regardless of the order of arguments."""
    return json.dumps([call["name"], call["args"]], sort_keys=True, default=str)


def _without_tools(request: Request) -> Request:
    """Return the request with tool choice `none`. The tools stay: Anthropic requires them if the history has calls.

    Anthropic's class takes the choice as a mapping, others as a string.
    """
    kinds = type(request.model).__mro__
    is_anthropic = any("Anthropic" in kind.__name__ for kind in kinds)
    choice: Any = {"type": "none"} if is_anthropic else "none"
    return add_reminder(request, STOP_MESSAGE, LOOP_WARNING).override(tool_choice=choice)


def _final_response(circling: Response, final: Response, words: AgentMessages) -> Response:
    """Return the final answer without its calls, preceded by the text that came with the dropped calls."""
    before = [without_tool_calls(m) for m in _ai_messages(circling) if m.text.strip()]
    answer = [without_tool_calls(m, words.loop_detected) for m in _ai_messages(final)]
    return ModelResponse(result=[*before, *answer])


def _ai_messages(response: Response) -> list[AIMessage]:
    return [message for message in response.result if isinstance(message, AIMessage)]
