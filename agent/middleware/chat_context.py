"""Tells the model who wrote each message in a group, and which chat it is in."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.locales import PROMPTS, PromptTexts
from agent.middleware.handler_types import ModelHandler
from agent.middleware.system_message import append_to_system_message
from agent.speakers import SILENCE, chat_section, speaker_of
from agent.state import ThreadState
from agent.user_messages import HUMAN, is_user_message


class ChatContextMiddleware(AgentMiddleware[ThreadState, Any]):
    """Puts a `<speaker>` line before each person's message in a group, and appends a `<chat>` section to the prompt.

    A message that no person sent gets the line in private chats too, and a note that says so.

    Changes only requests; the thread keeps the original messages. A line depends only on its message, so that the
    beginning of a request stays the same from turn to turn. `name` is removed, because many servers reject names with
    spaces.

    Args:
        language: The language of the prompt: a key of `PROMPTS`.
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        self._texts = PROMPTS[language]

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        named = dict(_with_speakers(request.messages, self._texts))
        if named:
            messages = [named.get(at, message) for at, message in enumerate(request.messages)]
            request = request.override(messages=messages)
        if section := chat_section(request.runtime.context, get_config(), self._texts):
            system = append_to_system_message(request.system_message, section)
            request = request.override(system_message=system)
        return await handler(request)


def _with_speakers(
    messages: Sequence[AnyMessage], texts: PromptTexts
) -> Iterator[tuple[int, AnyMessage]]:
    """Yield (position, new message) for each message that changes."""
    for at, message in enumerate(messages):
        if message.type != HUMAN:
            continue
        speaker = speaker_of(message)
        if speaker is not None:
            note = texts.origins.get(speaker.origin, "").format(silence=SILENCE)
            line = "".join(f"{each}\n" for each in (speaker.line, note) if each)
            content = message.content
            named = (
                f"{line}{content}"
                if isinstance(content, str)
                else [{"type": "text", "text": line}, *content]
            )
            yield at, message.model_copy(update={"content": named, "name": None})
        elif message.name is not None and is_user_message(message):
            yield at, message.model_copy(update={"name": None})
