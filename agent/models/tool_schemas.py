"""Schemas of tools in OpenAI's form, made once for each tool."""

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
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

    async def prepare(self, model: BaseChatModel, tools: Sequence[ModelTool]) -> None:
        """Convert new tools on another thread: those of an agent take 25 ms of CPU, in which all others would wait.

        With them the models of messages are built, which the first answer would do otherwise: another 10 ms.
        """
        if not _takes_schemas(model):
            return
        new = [tool for tool in tools if _is_plain(tool) and self._find(tool) is None]
        if new:
            await anyio.to_thread.run_sync(self._convert, new)

    def for_model(self, model: BaseChatModel, tools: Sequence[ModelTool]) -> list[ModelTool]:
        """Return the tools as the model's class is called with them; those it has to convert itself stay."""
        if not _takes_schemas(model):
            return list(tools)
        return [self._schema(tool) if _is_plain(tool) else tool for tool in tools]

    def _convert(self, tools: Sequence[BaseTool]) -> None:
        for model in (AIMessageChunk, AIMessage):
            model.model_rebuild()  # does nothing the next time
        for tool in tools:
            self._schema(tool)

    def _find(self, tool: BaseTool) -> dict[str, Any] | None:
        known = self._schemas.get(id(tool))
        if (
            known
            and known[0] is tool
            and known[1] == tool.description
            and known[2] is tool.args_schema
        ):
            return known[3]
        return None

    def _schema(self, tool: BaseTool) -> dict[str, Any]:
        known = self._find(tool)
        if known is not None:
            return known
        if len(self._schemas) >= MAX_TOOLS:
            self._schemas.clear()
        schema = convert_to_openai_tool(tool)
        self._schemas[id(tool)] = (tool, tool.description, tool.args_schema, schema)
        return schema


def _takes_schemas(model: BaseChatModel) -> bool:
    return getattr(type(model).bind_tools, "__module__", "") == _CONVERTING_MODULE


def _is_plain(tool: ModelTool) -> TypeIs[BaseTool]:
    """Return whether a tool's schema is all that the class reads of it."""
    return (
        isinstance(tool, BaseTool)
        and not tool.extras
        and (tool.metadata or {}).get("type") != "custom_tool"
    )
