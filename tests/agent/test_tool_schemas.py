"""Schemas of tools: those of OpenAI's form are made once, and are what LangChain makes."""

import sys
from types import FrameType
from typing import Any

from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI

from agent.models.tool_schemas import ToolSchemas
from tests.fakes.scripted import ScriptedChatModel

MODEL = ChatOpenAI(model="m", api_key="k")  # type: ignore[arg-type]


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"{city} {days}"


@tool(extras={"defer_loading": True})
def with_extras(city: str) -> str:
    """Tell more."""
    return city


WEB: dict[str, Any] = {"type": "web_search"}
TOOLS: list[BaseTool | dict[str, Any]] = [weather, with_extras, WEB]


def bound(tools: list[BaseTool | dict[str, Any]], **options: Any) -> Any:  # noqa: ANN401
    return MODEL.bind_tools(tools, **options).kwargs  # type: ignore[attr-defined]


def conversions(tools: list[BaseTool | dict[str, Any]]) -> int:
    """Return how many tools LangChain converts when they are bound."""
    converted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal converted
        name = "_format_tool_to_openai_function"
        converted += event == "call" and frame.f_code.co_name == name

    sys.setprofile(count)
    bound(tools)
    sys.setprofile(None)
    return converted


def test_a_model_is_called_with_the_same_schemas_but_they_are_made_once() -> None:
    schemas = ToolSchemas()
    for choice in (None, "auto", "weather", "none"):
        for _ in range(2):
            tools = schemas.for_model(MODEL, TOOLS)
            assert bound(tools, tool_choice=choice) == bound(TOOLS, tool_choice=choice)
    assert conversions(TOOLS) == 2, "LangChain caches schemas itself: drop ToolSchemas"
    assert conversions(schemas.for_model(MODEL, TOOLS)) == 1  # the one with extras


async def test_another_thread_makes_the_schemas_of_the_first_model_call() -> None:
    """Else all others wait for them: 25 ms of CPU for the tools of an agent."""
    mine = weather.model_copy()
    tools: list[BaseTool | dict[str, Any]] = [mine, with_extras, WEB]
    schemas = ToolSchemas()
    here = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal here
        here += event == "call" and frame.f_code.co_name == "_format_tool_to_openai_function"

    sys.setprofile(count)  # of this thread
    await schemas.prepare(MODEL, tools)
    converted = schemas.for_model(MODEL, tools)
    sys.setprofile(None)
    assert here == 0
    assert converted == [convert_to_openai_tool(mine), *tools[1:]]


def test_a_changed_tool_has_a_new_schema() -> None:
    schemas = ToolSchemas()
    changing = weather.model_copy()
    schemas.for_model(MODEL, [changing])
    changing.description = "Tell it otherwise."
    assert schemas.for_model(MODEL, [changing]) == [convert_to_openai_tool(changing)]


def test_other_models_convert_tools_themselves() -> None:
    assert ToolSchemas().for_model(ScriptedChatModel.playing(), TOOLS) == TOOLS
