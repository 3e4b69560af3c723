"""Moves long tool results into a file; the model sees the beginning, the end and the path."""

import logging
import re
from dataclasses import replace
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from typing_extensions import override

from agent.config import ToolOutputConfig
from agent.errors import AgentError
from agent.middleware.handlers import ToolHandler, ToolResult
from agent.options import thread_id_for_run
from agent.paths import OUTPUTS
from agent.sandbox.protocol import SandboxProvider
from agent.state import ThreadState

logger = logging.getLogger(__name__)

FOLDER = f"{OUTPUTS}/.tool-results"
"""The folder for long results. Listings omit it; its files are read by path."""


class ToolOutputBudgetMiddleware(AgentMiddleware[ThreadState, Any]):
    """Limits what one tool call adds to the thread. Outside all other tool middleware, so it sees the final result.

    Args:
        config: The section.
        sandboxes: Where to write the files.
    """

    def __init__(self, config: ToolOutputConfig, sandboxes: SandboxProvider) -> None:
        super().__init__()
        self._config = config
        self._sandboxes = sandboxes

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        result = await handler(request)
        if self._is_exempt(request):
            return result
        shorter = {id(m): await self._save_to_file(request, m) for m in self._long_messages(result)}
        return _replace_messages(result, shorter)

    def _is_exempt(self, request: ToolCallRequest) -> bool:
        return request.tool_call["name"] in self._config.exempt_tools

    def _long_messages(self, result: ToolResult) -> list[ToolMessage]:
        return [
            message
            for message in _messages(result)
            if isinstance(message, ToolMessage) and len(message.text) > self._config.max_chars
        ]

    async def _save_to_file(self, request: ToolCallRequest, message: ToolMessage) -> ToolMessage:
        """Write the result to a file and return its beginning and end; if that fails, only shorten it."""
        config, text = self._config, message.text
        path = f"{FOLDER}/{_file_name(request)}"
        try:
            runtime = request.runtime
            sandbox = await self._sandboxes.acquire(
                thread_id_for_run(runtime.context, runtime.config)
            )
            await sandbox.write_file(path, text)
        except (AgentError, OSError) as error:
            logger.warning("Could not save a long tool result: %s", error)
            return self._shorten(message)
        note = f"the complete result ({len(text)} characters) is in {path}; read it in parts or search it"
        return _replace_text(
            message,
            _head_and_tail(text, config.preview_head_chars, config.preview_tail_chars, note),
        )

    def _shorten(self, message: ToolMessage) -> ToolMessage:
        config, text = self._config, message.text
        if len(text) <= config.fallback_max_chars:
            return message
        note = "request less at once to see the rest"
        ends = _head_and_tail(text, config.fallback_head_chars, config.fallback_tail_chars, note)
        return _replace_text(message, ends)


def _head_and_tail(text: str, head: int, tail: int, note: str) -> str:
    dropped = len(text) - head - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]}\n\n... [{dropped} characters omitted; {note}]\n\n{end}".rstrip()


def _file_name(request: ToolCallRequest) -> str:
    """Return a unique, safe file name that includes the tool's name."""
    tool = re.sub(r"[^A-Za-z0-9_-]", "_", request.tool_call["name"])[:40] or "tool"
    return f"{tool}-{uuid4().hex[:12]}.txt"


def _replace_text(message: ToolMessage, text: str) -> ToolMessage:
    """Replace the text of a result; other blocks, like images, stay."""
    if isinstance(message.content, str):
        return message.model_copy(update={"content": text})
    others = [b for b in message.content if isinstance(b, dict) and b.get("type") != "text"]
    return message.model_copy(update={"content": [{"type": "text", "text": text}, *others]})


def _messages(result: ToolResult) -> list[Any]:
    if isinstance(result, ToolMessage):
        return [result]
    update = result.update
    messages = update.get("messages") if isinstance(update, dict) else None
    return list(messages) if isinstance(messages, list) else []


def _replace_messages(result: ToolResult, shorter: dict[int, ToolMessage]) -> ToolResult:
    """Replace messages by object identity."""
    if not shorter:
        return result
    if isinstance(result, ToolMessage):
        return shorter[id(result)]
    update = dict(result.update)  # type: ignore[arg-type]
    update["messages"] = [shorter.get(id(message), message) for message in _messages(result)]
    return replace(result, update=update)
