"""Chat models from OpenAI's package, for all servers with OpenAI's API.

langchain-openai drops fields that OpenAI does not define. Some servers reject the next request of a conversation
without them: thinking next to the text (DeepSeek), its signatures (Google), or both in other forms (OpenRouter). The
classes here keep the fields in `additional_kwargs`, and send them back to the same server with the same message or
call.

Imports the `openai` package: import this module by name, and only for a model that needs it.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai.chat_models.base import BaseChatOpenAI
from openai.resources.chat.completions import AsyncCompletions
from pydantic import create_model
from typing_extensions import override

from agent.clean_values import read_json
from agent.models.answers import PROVIDER_FIELDS, REASONING_FIELDS, TAGGED_THINKING
from agent.models.openai_client import DirectCompletions

_KEPT = (*REASONING_FIELDS, TAGGED_THINKING, PROVIDER_FIELDS)

if TYPE_CHECKING:
    _Base = BaseChatOpenAI
else:
    _Base = object  # otherwise pydantic would attribute the fields of BaseChatOpenAI to a subclass


class CompatibleServer(_Base):
    """Mixin for classes of OpenAI's package: normalizes answers, keeps a server's fields, and sends them back.

    Attributes:
        returns_all_reasoning: Whether thinking is sent back with all answers. Otherwise it is sent back only with
            answers that call tools: some servers require it there, and others may reject it elsewhere.
    """

    returns_all_reasoning: ClassVar[bool] = False

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - the class's arguments
        super().__init__(**settings)
        if isinstance(self.async_client, AsyncCompletions):
            url = self.root_async_client.base_url
            self.async_client = DirectCompletions(
                self.root_async_client,
                base_url=str(url),
                names_token_limit=_token_limit_name(settings, url.host),
                thinks_first=getattr(self.http_async_client, "thinks_first", set()),
            )

    @property
    def is_openai(self) -> bool:
        """Whether the server is OpenAI's, or Azure's with OpenAI's models."""
        return _is_openai(self.root_async_client.base_url.host)

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
                _keep_fields(converted.message, choice.get("delta") or {})
        return converted

    @override
    def _create_chat_result(
        self,
        response: Any,
        generation_info: dict[str, Any] | None = None,
    ) -> ChatResult:
        if not isinstance(response, dict):
            return super()._create_chat_result(response, generation_info)
        (choice,) = response["choices"]
        message = {name: value for name, value in choice["message"].items() if name != "tool_calls"}
        bare = {**response, "choices": [{**choice, "message": message}]}
        result = super()._create_chat_result(bare, generation_info)
        answer = result.generations[0].message
        if isinstance(answer, AIMessage):
            _keep_fields(answer, message)
            _add_calls(answer, choice["message"].get("tool_calls") or ())
        return result

    @override
    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
        messages = self._convert_input(input_).to_messages()
        # The Responses API has no `messages`, and has its own form of reasoning.
        for message, sent in zip(messages, payload.get("messages") or (), strict=False):
            if message.additional_kwargs and isinstance(message, AIMessage):
                self._return_fields(message.additional_kwargs, sent)
        return payload

    def _return_fields(self, kept: Mapping[str, Any], sent: dict[str, Any]) -> None:
        """Add a message's original fields to the form in which it is sent."""
        fields = kept.get(PROVIDER_FIELDS)
        is_marked = isinstance(fields, dict)
        if not isinstance(fields, dict):
            fields = {}
        elif fields.get("server") != getattr(self.async_client, "server", ""):
            return
        if self.returns_all_reasoning or (is_marked and sent.get("tool_calls")):
            sent.update({name: kept[name] for name in REASONING_FIELDS if kept.get(name)})
        for name, value in (fields.get("message") or {}).items():
            sent.setdefault(name, value)
        of_calls = fields.get("calls") or {}
        sent_calls = sent.get("tool_calls") or []
        if of_calls and sent_calls:
            sent["tool_calls"] = [
                _with_fields(call, of_calls.get(call["id"])) for call in sent_calls
            ]


@cache
def compatible_class(model_class: type[BaseChatOpenAI]) -> type[BaseChatOpenAI]:
    """Return a subclass with `CompatibleServer`, under the same name; the class itself if it already is one."""
    if issubclass(model_class, CompatibleServer):
        return model_class
    return create_model(
        model_class.__name__,
        __base__=(CompatibleServer, model_class),
        __module__=model_class.__module__,
        __doc__=model_class.__doc__,
    )


def _is_openai(host: str) -> bool:
    return host.endswith((".openai.com", ".openai.azure.com"))


def _token_limit_name(settings: Mapping[str, Any], host: str) -> str:
    """Return a server's name for the limit of an answer's tokens. Only OpenAI's models reject the older name."""
    return (
        "max_completion_tokens"
        if _is_openai(host) or "max_completion_tokens" in settings
        else "max_tokens"
    )


def _keep_fields(message: BaseMessage, source: Mapping[str, Any]) -> None:
    for name in _KEPT:
        if source.get(name):
            message.additional_kwargs[name] = source[name]


def _with_fields(call: dict[str, Any], fields: Mapping[str, Any] | None) -> dict[str, Any]:
    if not fields:
        return call
    return {**fields, **call, "function": {**(fields.get("function") or {}), **call["function"]}}


def _add_calls(message: AIMessage, raw: Any) -> None:  # noqa: ANN401 - JSON
    """Add calls to a whole answer. Their arguments may have any form."""
    for call in raw:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        try:
            args = read_json(arguments or "{}")
            error = None if isinstance(args, dict) else "They are not a JSON object."
        except ValueError as problem:
            args, error = None, str(problem)
        if error is None:
            message.tool_calls.append(
                ToolCall(name=name, args=args, id=call["id"], type="tool_call")
            )
        else:
            message.invalid_tool_calls.append(
                InvalidToolCall(
                    name=name, args=arguments, id=call["id"], error=error, type="invalid_tool_call"
                )
            )
