"""Schemas of tools in OpenAI's form, made once for each tool."""

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import TypeIs

MAX_TOOLS = 1_000
"""Tools whose schemas are cached."""

_CONVERTING_MODULE = "langchain_openai.chat_models.base"
"""Defines a `bind_tools` that takes schemas as they are."""

ModelTool = BaseTool | dict[str, Any]


class ToolSchemas:
    """Converts tools for models whose class would convert all of them anew for each call, at 0.05 ms a tool."""

    def __init__(self) -> None:
        self._schemas: dict[int, tuple[BaseTool, str, object, dict[str, Any]]] = {}

    def for_model(self, model: BaseChatModel, tools: Sequence[ModelTool]) -> list[ModelTool]:
        """Return the tools as the model's class is called with them; those it has to convert itself stay."""
        if getattr(type(model).bind_tools, "__module__", "") != _CONVERTING_MODULE:
            return list(tools)
        return [self._schema(tool) if _is_plain(tool) else tool for tool in tools]

    def _schema(self, tool: BaseTool) -> dict[str, Any]:
        known = self._schemas.get(id(tool))
        if (
            known
            and known[0] is tool
            and known[1] == tool.description
            and known[2] is tool.args_schema
        ):
            return known[3]
        if len(self._schemas) >= MAX_TOOLS:
            self._schemas.clear()
        schema = convert_to_openai_tool(tool)
        self._schemas[id(tool)] = (tool, tool.description, tool.args_schema, schema)
        return schema


def _is_plain(tool: ModelTool) -> TypeIs[BaseTool]:
    """Return whether a tool's schema is all that the class reads of it."""
    return (
        isinstance(tool, BaseTool)
        and not tool.extras
        and (tool.metadata or {}).get("type") != "custom_tool"
    )
