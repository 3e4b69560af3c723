"""Adds a line below an answer when most of an allowance is used."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.localization import localized_messages
from agent.middleware.tool_calls import append_note, has_calls, is_silence
from agent.models.failures import is_fallback
from agent.state import ThreadState
from agent.usage.limits import limit_texts
from agent.usage.recorder import UsageRecorder
from store.usage import WARNED_PERCENT


class UsageNoticeMiddleware(AgentMiddleware[ThreadState, Any]):
    """Appends a line to the first answer after a person or room has used `WARNED_PERCENT` of a limit.

    Limits of an agent and of the service concern the operator, so they are only logged.

    Args:
        usage: Reports the state of the limits.
    """

    def __init__(self, usage: UsageRecorder) -> None:
        super().__init__()
        self._usage = usage

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        response = await handler(request)
        answer = response.result[-1] if response.result else None
        # If the answer is silence, the next answer that people see gets the line.
        if (
            not isinstance(answer, AIMessage)
            or has_calls(answer)
            or is_fallback(answer)
            or is_silence(answer)
        ):
            return response
        words = localized_messages(request)
        for limit in self._usage.take_warnings():
            note = words.usage_warning(limit.counter.scope)
            texts = limit_texts(limit)
            answer = append_note(answer, note.format(percent=WARNED_PERCENT, **texts))
        result = [*response.result[:-1], answer]
        return ModelResponse(result=result, structured_response=response.structured_response)
