"""Lists the thread's background processes for the model while they run."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.prompt_cache import is_anthropic
from agent.middleware.system_message import add_reminder
from agent.options import thread_id_for_run
from agent.sandbox.background_commands import BackgroundCommand, BackgroundCommands
from agent.state import ThreadState

SHOWN_CHARS = 200
"""Maximum length of a command in the list, characters."""


class BackgroundCommandsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Appends the list to each request. The thread does not store it, and the rest of the request stays the same.

    The list goes at the end of the last message, because strict servers reject a second user message in a row.
    Anthropic's package joins such messages, so for its models the list is a separate message after the cache mark of
    the last one. This is the innermost middleware, because that mark must be set first.
    """

    def __init__(self, background: BackgroundCommands) -> None:
        super().__init__()
        self._background = background

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        running = self._background.running(thread_id_for_run(request.runtime.context, get_config()))
        if running and request.messages:
            text = running_text(running)
            if is_anthropic(request.model):
                request = add_reminder(request, text)
            else:
                last = _with_text(request.messages[-1], text)
                request = request.override(messages=[*request.messages[:-1], last])
        return await handler(request)


def running_text(running: list[BackgroundCommand]) -> str:
    """Return the list of background processes for the model."""
    lines = [
        f"- {one.id} ({one.age_s} s): {' '.join(one.command.split())[:SHOWN_CHARS]}"
        for one in running
    ]
    return "\n".join(["[Background processes that are running now:", *lines, "]"])


def _with_text(message: AnyMessage, text: str) -> AnyMessage:
    content = message.content
    added = (
        f"{content}\n\n{text}"
        if isinstance(content, str)
        else [*content, {"type": "text", "text": f"\n\n{text}"}]
    )
    return message.model_copy(update={"content": added})
