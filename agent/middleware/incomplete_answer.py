"""Explains empty and incomplete answers: calls the model again, or says under the text why it ended."""

import re
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from agent.locales import AgentMessages
from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.system_message import add_reminder
from agent.middleware.tool_calls import (
    append_note,
    has_calls,
    is_empty_answer,
    without_tool_calls,
)
from agent.models.answers import THINKING_FIELDS
from agent.models.failures import is_fallback
from agent.models.finish_reasons import finish_kind, finish_reason
from agent.state import ThreadState

EMPTY_ANSWER_REMINDER = "Your answer was empty. Write the answer to the user now."

_ODD = re.compile(r"[^\w-]")

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class IncompleteAnswerMiddleware(AgentMiddleware[ThreadState, Any]):
    """Handles answers that are empty, cut off or filtered.

    If an answer is empty, the model is called once more. Calls of a filtered answer are dropped. A line under the text
    says why an answer is incomplete.

    Args:
        safety: Whether to handle filtered answers.
    """

    def __init__(self, *, safety: bool = True) -> None:
        super().__init__()
        self._safety = safety

    @override
    async def awrap_model_call(self, request: Request, handler: ModelHandler) -> Response:
        response = await handler(request)
        if _is_empty_response(response):
            response = await handler(add_reminder(request, EMPTY_ANSWER_REMINDER))
        words = localized_messages(request)
        result = [self._finished(message, words) for message in response.result]
        return ModelResponse(result=result, structured_response=response.structured_response)

    def _finished(self, message: BaseMessage, words: AgentMessages) -> BaseMessage:
        """Append a line that says why the message ended, unless it ended normally."""
        if not isinstance(message, AIMessage) or is_fallback(message):
            return message
        kind = finish_kind(message)
        if kind == "filtered" and self._safety:
            is_silent = not message.text.strip()
            note = words.filtered if is_silent else words.answer_filtered
            bare = without_tool_calls(message)
            return append_note(bare, note) if isinstance(bare, AIMessage) else bare
        if kind in ("whole", "filtered") or has_calls(message):
            return message
        if kind == "length" and _only_thought(message):
            return append_note(message, words.only_thought)
        note = {
            "length": words.answer_cut_off,
            "stopped": words.answer_stopped,
        }.get(
            kind, words.answer_ended_oddly.format(reason=_ODD.sub("_", finish_reason(message))[:40])
        )
        return append_note(message, note)


def _is_empty_response(response: Response) -> bool:
    """Return whether a response is empty and another attempt may succeed."""
    answers = [message for message in response.result if isinstance(message, AIMessage)]
    return (
        bool(answers)
        and len(answers) == len(response.result)
        and all(
            is_empty_answer(message) and finish_kind(message) not in ("filtered", "length")
            for message in answers
        )
    )


def _only_thought(message: AIMessage) -> bool:
    """Return whether a model wrote nothing but thinking."""
    if message.text.strip():
        return False
    usage = message.usage_metadata
    tokens = usage.get("output_token_details", {}).get("reasoning") if usage else 0
    return bool(tokens) or any(message.additional_kwargs.get(name) for name in THINKING_FIELDS)
