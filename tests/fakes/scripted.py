"""A chat model without a server, for tests of the agent: plays the replies of tests/fakes/model.py."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from uuid import uuid4

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr
from typing_extensions import override

from agent.models.scripted import ScriptedCall, ScriptedTurn, stream_chunks
from tests.eventually import eventually
from tests.fakes.model import DONE, ModelReply, ToolCall, as_reply

Script = ModelReply | Exception


class ScriptedChatModel(BaseChatModel):
    """Plays one entry of its script per call. An exception is raised. After the end of the script, it says "(done)".

    It uses a reply's text, calls, finish reason and pauses. The other fields only concern servers.
    """

    _script: deque[Script] = PrivateAttr(default_factory=deque)
    _prompts: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _called: anyio.Event = PrivateAttr(default_factory=anyio.Event)
    _gate: Callable[[], Awaitable[object]] | None = PrivateAttr(default=None)

    @classmethod
    def playing(cls, *script: Script | str) -> Self:
        """Build a model with a script. A string is a reply with that text."""
        model = cls()
        model._script.extend(
            entry if isinstance(entry, Exception) else as_reply(entry) for entry in script
        )
        return model

    @property
    def prompts(self) -> list[list[BaseMessage]]:
        """The messages of every call, system prompt included."""
        return self._prompts

    @property
    def called(self) -> anyio.Event:
        """Set by the first call."""
        return self._called

    def hold(self) -> anyio.Event:
        """Let it answer only once the returned event is set."""
        released = anyio.Event()
        self._gate = released.wait
        return released

    def hold_until(self, condition: Callable[[], object]) -> None:
        """Let it answer each call only when a condition holds."""
        self._gate = partial(eventually, condition)

    @property
    @override
    def _llm_type(self) -> str:
        return "scripted"

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._next(messages), messages):
            yield ChatGenerationChunk(message=chunk)

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = self._next(messages)
        if self._gate is not None:
            await self._gate()
        await anyio.sleep(reply.first_token_delay_s or 0.0)
        for chunk in _chunks(reply, messages):
            await anyio.sleep(reply.token_delay_s or 0.0)
            piece = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(piece.text, chunk=piece)
            yield piece

    def _next(self, messages: list[BaseMessage]) -> ModelReply:
        self._prompts.append(list(messages))
        self._called.set()
        entry = self._script.popleft() if self._script else DONE
        if isinstance(entry, Exception):
            raise entry
        return entry


def _chunks(reply: ModelReply, prompt: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
    calls = tuple(_call(call, index) for index, call in enumerate(reply.calls))
    turn = ScriptedTurn(text=reply.text, calls=calls, finish_reason=reply.finish_reason or "")
    return stream_chunks(turn, prompt)


def _call(call: ToolCall, index: int) -> ScriptedCall:
    assert isinstance(call.args, dict), "broken arguments need a server"
    return ScriptedCall(name=call.name, args=call.args, id=call.id or f"call_{call.name}_{index}")


_REGISTERED: dict[str, ScriptedChatModel] = {}


class RegisteredModel(ScriptedChatModel):
    """Plays the script of a model that a test registered under a name, so that a configuration can use it.

    All models built under one name share one script and one list of prompts.
    """

    model_name: str = Field(alias="model")

    @override
    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        original = _REGISTERED[self.model_name]
        self._script = original._script
        self._prompts = original._prompts
        self._called = original._called
        self._gate = original._gate


@contextmanager
def registered(model: ScriptedChatModel) -> Iterator[dict[str, str]]:
    """Yield the keys of a `models` entry for this model. Its name is `scripted` unless the test changes it."""
    name = f"scripted-{uuid4()}"
    _REGISTERED[name] = model
    try:
        yield {"name": "scripted", "use": f"{__name__}:{RegisteredModel.__name__}", "model": name}
    finally:
        del _REGISTERED[name]
