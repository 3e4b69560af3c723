"""Completes empty and incomplete answers: calls the model again, or adds a line that says why the text ended."""

import re
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import add_usage
from typing_extensions import override

from agent.langgraph_internals import model_with_message_id
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
CONTINUE_REMINDER = (
    "Your answer reached the length limit and was cut off. Continue it exactly where it stops, with the very next "
    "character, even if that is a space or inside a word. Repeat nothing and add no remark: the user reads both parts "
    "as one text."
)

_ODD = re.compile(r"[^\w-]")

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class IncompleteAnswerMiddleware(AgentMiddleware[ThreadState, Any]):
    """Handles answers that are empty, cut off or filtered.

    If an answer is empty, or its text ends at the length limit, this calls the model once more. Both parts of a text
    become one message. Calls of a filtered answer are dropped. A line below the text says why an answer is incomplete.
    Middleware outside this one sees a single answer.

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
        elif (begun := _cut_text(response)) is not None:
            continued = await handler(_continue_request(request, begun))
            response = _joined_response(begun, continued) or response
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


def _cut_text(response: Response) -> AIMessage | None:
    """Return the answer if its text ends at the length limit; None if it calls tools or has only thinking."""
    if len(response.result) != 1 or not isinstance(answer := response.result[0], AIMessage):
        return None
    is_cut = finish_kind(answer) == "length" and not is_fallback(answer)
    return answer if is_cut and not has_calls(answer) and answer.text.strip() else None


def _continue_request(request: Request, begun: AIMessage) -> Request:
    """Return a request for the rest of an answer. The new tokens have the answer's id, so that clients join them."""
    if begun.id is not None:
        request = request.override(model=model_with_message_id(request.model, begun.id))
    messages = [*request.messages, AIMessage(begun.text)]
    return add_reminder(request.override(messages=messages), CONTINUE_REMINDER)


def _joined_response(begun: AIMessage, continued: Response) -> Response | None:
    """Return a response of one message. None if the model did not continue."""
    if len(continued.result) != 1 or not isinstance(rest := continued.result[0], AIMessage):
        return None
    if is_fallback(rest) or is_empty_answer(rest):
        return None
    usage = add_usage(begun.usage_metadata, rest.usage_metadata)
    content = _joined_content(begun.text, rest.content)
    joined = rest.model_copy(update={"id": begun.id, "content": content, "usage_metadata": usage})
    return ModelResponse(result=[joined], structured_response=continued.structured_response)


def _joined_content(
    text: str, content: str | list[str | dict[Any, Any]]
) -> str | list[str | dict[Any, Any]]:
    """Put a text before the first text of a message's content.

    >>> _joined_content("Half", "way."), _joined_content("Half", [{"type": "tool_use"}])
    ('Halfway.', [{'type': 'text', 'text': 'Half'}, {'type': 'tool_use'}])
    """
    if isinstance(content, str):
        return text + content
    blocks = list(content)
    for at, block in enumerate(blocks):
        if isinstance(block, str):
            blocks[at] = text + block
            return blocks
        if block.get("type") == "text":
            blocks[at] = {**block, "text": f"{text}{block.get('text') or ''}"}
            return blocks
    return [{"type": "text", "text": text}, *blocks]


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
    """Return whether a model wrote only thinking."""
    if message.text.strip():
        return False
    usage = message.usage_metadata
    tokens = usage.get("output_token_details", {}).get("reasoning") if usage else 0
    return bool(tokens) or any(message.additional_kwargs.get(name) for name in THINKING_FIELDS)
