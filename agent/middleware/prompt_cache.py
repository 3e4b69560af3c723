"""Marks the parts of requests for providers to cache: Anthropic's `cache_control`, OpenAI's `prompt_cache_key`.

OpenAI and most others cache the beginnings of requests automatically, and a key sends all requests of a conversation to
the same cache. Anthropic caches only up to marks in the request and allows four. Parley sets two: one before memory
and date in the system prompt, which also covers the tools, and one at the end of the last message.
"""

from collections.abc import Mapping
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.system_message import STABLE_CHARS
from agent.options import thread_id_for_run
from agent.state import ThreadState

CACHE_CONTROL: Mapping[str, str] = {"type": "ephemeral"}
"""Keeps an entry for 5 minutes after its last use, the cheapest option (platform.claude.com, prompt caching)."""


class PromptCacheMiddleware(AgentMiddleware[ThreadState, Any]):
    """Adds the marks to each request of a model whose provider reads them.

    Nothing may change the marked messages afterwards. Content that differs in each request comes after them.

    Servers with only an OpenAI-compatible API get no key, because some reject requests with unknown fields.
    """

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        if is_anthropic(request.model):
            request = request.override(
                system_message=_mark_stable_part(request.system_message),
                messages=_mark_last_message(request.messages),
            )
        elif getattr(request.model, "is_openai", False):
            key = thread_id_for_run(
                request.runtime.context, get_config()
            )  # at most 64 characters, as OpenAI requires
            settings = {"prompt_cache_key": key, **request.model_settings}
            request = request.override(model_settings=settings)
        return await handler(request)


def is_anthropic(model: BaseChatModel) -> bool:
    """Return whether a model's class is ChatAnthropic, or a class for Claude at another provider."""
    return any(kind.__name__.startswith("ChatAnthropic") for kind in type(model).__mro__)


def _mark_stable_part(system: SystemMessage | None) -> SystemMessage | None:
    """Return the system message as two blocks, the first one marked."""
    if system is None or not isinstance(system.content, str):
        return system
    end = system.additional_kwargs.get(STABLE_CHARS, len(system.content))
    blocks = [_text_block(system.content[:end], marked=True)]
    if rest := system.content[end:]:
        blocks.append(_text_block(rest))
    return system.model_copy(update={"content": blocks})


def _mark_last_message(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with a mark at the last text of the last message. Empty texts cannot be marked.

    A marked result must be a list of blocks. All results become lists, because a result must look the same in the next
    request.
    """
    if not messages or (marked := _marked(messages[-1])) is None:
        return messages
    earlier = [_in_blocks(message) for message in messages[:-1]]
    return [*earlier, messages[-1].model_copy(update={"content": marked})]


def _in_blocks(message: AnyMessage) -> AnyMessage:
    content = message.content
    if not (isinstance(message, ToolMessage) and isinstance(content, str) and content.strip()):
        return message
    return message.model_copy(update={"content": [_text_block(content)]})


def _marked(message: BaseMessage) -> list[Any] | None:
    content = message.content
    blocks: list[Any] = [content] if isinstance(content, str) else list(content)
    for at in range(len(blocks) - 1, -1, -1):
        given = blocks[at]
        block = _text_block(given) if isinstance(given, str) else given
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            blocks[at] = {**block, "cache_control": dict(CACHE_CONTROL)}
            return blocks
    return None


def _text_block(text: str, *, marked: bool = False) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    return {**block, "cache_control": dict(CACHE_CONTROL)} if marked else block
