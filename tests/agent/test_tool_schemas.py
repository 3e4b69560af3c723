"""Tool schemas in OpenAI's form are created once, and are the same as LangChain's."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI

from agent.middleware.tool_schemas import ToolSchemaMiddleware
from tests.fakes.scripted import ScriptedChatModel

MODEL = ChatOpenAI(model="m", api_key="k")  # type: ignore[arg-type]

ModelTools = Sequence[BaseTool | dict[str, Any]]


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"{city} {days}"


@tool(extras={"defer_loading": True})
def with_extras(city: str) -> str:
    """Tell more."""
    return city


WEB: dict[str, Any] = {"type": "web_search"}
TOOLS: ModelTools = [weather, with_extras, WEB]


def bound(tools: ModelTools, **options: Any) -> Any:  # noqa: ANN401
    return MODEL.bind_tools(tools, **options).kwargs  # type: ignore[attr-defined]


async def called_with(
    middleware: ToolSchemaMiddleware, tools: ModelTools, model: BaseChatModel = MODEL
) -> ModelTools:
    """Return the tools that a model is called with."""
    seen: list[ModelTools] = []

    async def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
        seen.append(request.tools)
        return ModelResponse(result=[AIMessage("")])

    request: Any = ModelRequest(model=model, messages=[], tools=[*tools])
    await middleware.awrap_model_call(request, handler)
    return seen[0]


def conversions(action: Callable[[], object]) -> int:
    """Return how many tools LangChain converts."""
    converted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal converted
        name = "_format_tool_to_openai_function"
        converted += event == "call" and frame.f_code.co_name == name

    sys.setprofile(count)
    action()
    sys.setprofile(None)
    return converted


async def test_a_model_is_called_with_the_same_schemas_but_they_are_made_once() -> None:
    middleware = ToolSchemaMiddleware()
    first = await called_with(middleware, TOOLS)
    for choice in (None, "auto", "weather", "none"):
        assert bound(first, tool_choice=choice) == bound(TOOLS, tool_choice=choice)
    assert conversions(lambda: bound(TOOLS)) == 2, (
        "LangChain caches schemas itself: remove our cache"
    )
    again = await called_with(middleware, TOOLS)
    assert again[0] is first[0]
    assert conversions(lambda: bound(again)) == 1  # only the tool with extras


async def test_other_models_convert_tools_themselves() -> None:
    other = ScriptedChatModel.playing()
    assert await called_with(ToolSchemaMiddleware(), TOOLS, other) == TOOLS
