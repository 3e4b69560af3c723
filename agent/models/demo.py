"""The built-in demo model. It needs no network, streams, calls tools, and says that it is a demo."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import anyio
from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field
from typing_extensions import override

from agent.models.scripted import ScriptedCall, ScriptedTurn, stream_chunks
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE
from agent.prompt import BOOTSTRAP_TAG
from agent.user_messages import strip_framework_blocks

HINT = (
    "I am Parley's built-in demo, not a language model. "
    "To get a real one, set `models:` in config.yaml (config.example.yaml shows how) and restart."
)
WELCOME = (
    "Welcome to Parley! The workspace is ready.\n\n"
    "- `write a file notes.txt saying hello` shows how files come back to you\n"
    "- `list files` shows a tool at work\n"
    "- `ask me something` shows a question with options\n"
    "- `/help` lists the commands\n\n"
)

_FILE_NAME = re.compile(r"(?<![\w/.])([\w-]{1,60}\.[A-Za-z0-9]{1,8})\b")
_CONTENT = re.compile(
    r"\b(?:saying|containing|with the text|that says|with)\b[:\s]+(.+)", re.IGNORECASE | re.DOTALL
)
_WRITE = re.compile(
    r"\b(?:write|make|create|present|save|send)\b.{0,80}?(?:\bfile\b|\.[a-z0-9]{1,8}\b)|写.{0,10}文件",
    re.IGNORECASE | re.DOTALL,
)
_LIST = re.compile(r"^\s*ls\b|\b(?:list|show)\b.{0,30}\bfiles\b|列出.{0,6}文件", re.IGNORECASE)
_RUN = re.compile(
    r"^\W*(?:please\s+)?(?:run|execute|运行|执行)\s*[:：]?\s*(`{1,3})(?:(?:bash|sh)\n)?(.+?)\1",
    re.IGNORECASE | re.DOTALL,
)
_ASK = re.compile(r"\bask me\b|问我", re.IGNORECASE)


class DemoChatModel(BaseChatModel):
    """A chat model that answers by a simple script (see `plan`).

    Attributes:
        model_name: Only a label.
        delay_s: Pause before each chunk, seconds.
    """

    model_name: str = Field(default="demo", alias="model")
    delay_s: float = Field(default=0.015, ge=0)

    @property
    @override
    def _llm_type(self) -> str:
        return "parley-demo"

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
        return generate_from_stream(self._stream(messages, stop, None, **kwargs))

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages, kwargs):
            piece = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(piece.text, chunk=piece)
            yield piece

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages, kwargs):
            await anyio.sleep(self.delay_s)
            piece = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(piece.text, chunk=piece)
            yield piece

    def _chunks(
        self, messages: list[BaseMessage], bound: dict[str, Any]
    ) -> Iterator[AIMessageChunk]:
        tools = {tool["function"]["name"] for tool in bound.get("tools") or ()}
        return stream_chunks(plan(messages, tools), messages)


def plan(messages: Sequence[BaseMessage], tools: set[str]) -> ScriptedTurn:
    """Choose the demo's response: report tool results, follow a known request, or echo.

    Args:
        messages: The conversation, system prompt included.
        tools: Names of the tools that may be called.
    """
    results = _trailing_results(messages)
    if results:
        return _report_results(messages, results, tools)
    humans = [message for message in messages if isinstance(message, HumanMessage)]
    request = strip_framework_blocks(humans[-1].text) if humans else ""
    if any(message.type == "system" and BOOTSTRAP_TAG in message.text for message in messages):
        return ScriptedTurn(text=WELCOME + HINT)
    turn = _requested_calls(request, tools, call_id=f"call_{len(messages)}")
    return turn or ScriptedTurn(text=_echo(request, humans))


def _requested_calls(request: str, tools: set[str], *, call_id: str) -> ScriptedTurn | None:
    """Return the tool calls for a request that the demo knows, or None."""
    if "bash" in tools and (found := _RUN.search(request)):
        args = {"description": "run it", "command": found.group(2).strip()}
        return ScriptedTurn(calls=(ScriptedCall(name="bash", args=args, id=call_id),))
    if _ASK.search(request) and "ask_clarification" in tools:
        return ScriptedTurn(
            calls=(ScriptedCall(name="ask_clarification", args=_QUESTION, id=call_id),)
        )
    if _LIST.search(request) and "ls" in tools:
        folders = (WORKSPACE, UPLOADS, OUTPUTS)
        calls = (
            ScriptedCall(
                name="ls", args={"description": "look around", "path": path}, id=f"{call_id}_{n}"
            )
            for n, path in enumerate(folders)
        )
        return ScriptedTurn(text="Let me look. ", calls=tuple(calls))
    if _WRITE.search(request) and {"write_file", "present_files"} <= tools:
        args = {
            "description": "write it",
            "path": _target_path(request),
            "content": _file_content(request),
        }
        return ScriptedTurn(
            text="I will write it. ",
            calls=(ScriptedCall(name="write_file", args=args, id=call_id),),
        )
    return None


_QUESTION = {
    "question": "Which color should the bike shed have?",
    "clarification_type": "approach_choice",
    "context": "You asked for a question.",
    "options": ["Red", "Green", "Blue"],
}


def _report_results(
    messages: Sequence[BaseMessage], results: list[ToolMessage], tools: set[str]
) -> ScriptedTurn:
    last = results[-1]
    failed = [result for result in results if result.text.startswith("Error")]
    if failed:
        return ScriptedTurn(
            text=f"That did not work. The tool {failed[0].name} reported:\n\n{failed[0].text}"
        )
    if last.name == "write_file" and "present_files" in tools:
        args = {"filepaths": [_written_path(messages, last)]}
        return ScriptedTurn(
            calls=(ScriptedCall(name="present_files", args=args, id=f"call_{len(messages)}"),)
        )
    if last.name == "present_files":
        return ScriptedTurn(text="Done: here is your file.")
    texts = "\n".join(result.text for result in results if result.text != "(empty)")
    return ScriptedTurn(
        text=f"This is what {last.name} found:\n\n```\n{texts or 'nothing yet'}\n```"
    )


def _echo(request: str, humans: Sequence[HumanMessage]) -> str:
    count = len(humans)
    number = "your first message" if count == 1 else f"message {count} from you"
    text = f"You said: {request}\n\nThis is {number} in this conversation"
    if count > 1:
        before = strip_framework_blocks(humans[-2].text)
        text += f"; the one before was “{before[:80]}”"
    return f"{text}.\n\n{HINT}"


def _trailing_results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return results[::-1]


def _written_path(messages: Sequence[BaseMessage], result: ToolMessage) -> str:
    calls = (
        call
        for message in reversed(messages)
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["id"] == result.tool_call_id
    )
    call = next(calls, None)
    return str(call["args"].get("path", "")) if call is not None else ""


def _target_path(request: str) -> str:
    found = _FILE_NAME.search(request)
    return f"{OUTPUTS}/{found.group(1) if found else 'hello.txt'}"


def _file_content(request: str) -> str:
    found = _CONTENT.search(request)
    return (found.group(1).strip() if found else "Hello from Parley's demo.") + "\n"
