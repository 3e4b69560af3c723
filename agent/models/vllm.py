"""Chat model for vLLM, DeepSeek and other servers that return reasoning beside the text.

The field is not OpenAI's, so langchain-openai drops it. Some servers reject the next request of a conversation
(400, "must be passed back") if a response with tool calls is sent back without it.
"""

from typing import Any

import openai
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from typing_extensions import override

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""The field's names: `reasoning` (vLLM since 0.11), `reasoning_content` (earlier vLLM, DeepSeek)."""


class VllmChatModel(ChatOpenAI):
    """ChatOpenAI that keeps the reasoning of responses in `additional_kwargs` and sends it back.

    The field keeps its name. It is never part of the text.
    """

    @property
    @override
    def _llm_type(self) -> str:
        return "parley-vllm"

    @override
    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,
    ) -> ChatGenerationChunk | None:
        converted = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if converted is not None and isinstance(converted.message, AIMessageChunk):
            for choice in chunk.get("choices") or ():
                _copy_reasoning(converted.message, choice.get("delta"))
        return converted

    @override
    def _create_chat_result(
        self,
        response: dict[str, Any] | openai.BaseModel,
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        answer = response if isinstance(response, dict) else response.model_dump(warnings=False)
        choices = answer.get("choices") or ()
        for generation, choice in zip(result.generations, choices, strict=False):
            if isinstance(generation.message, AIMessage):
                _copy_reasoning(generation.message, choice.get("message"))
        return result

    @override
    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        messages = self._convert_input(input_).to_messages()
        # The Responses API has no `messages`; it has its own form of reasoning.
        for message, sent in zip(messages, payload.get("messages") or (), strict=False):
            if isinstance(message, AIMessage):
                sent.update(
                    {
                        key: message.additional_kwargs[key]
                        for key in REASONING_FIELDS
                        if message.additional_kwargs.get(key)
                    }
                )
        return payload


def _copy_reasoning(message: AIMessage, source: Any) -> None:  # noqa: ANN401 - this is the wire
    if not isinstance(source, dict):
        return
    for key in REASONING_FIELDS:
        if isinstance(source.get(key), str) and source[key]:
            message.additional_kwargs[key] = source[key]
