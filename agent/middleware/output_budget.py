"""Moves long tool results into files. The model sees the beginning, the end and the path."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from typing_extensions import override

from agent.acp import tool as acp_tool
from agent.config import AgentConfig
from agent.errors import AgentError
from agent.mcp.tool_names import SERVER_KEY
from agent.middleware.clean_messages import clean_message
from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.options import thread_id_for_run
from agent.saved_texts import RESULTS, SAVED_TO, SavedTexts, message_text, with_text
from agent.state import ThreadState
from agent.tools.bash import BASH

log = logging.getLogger(__name__)

MAX_STORED_CHARS = 12_000_000
"""Longest result to save in full, characters. In UTF-8 it stays within the size that read_file and grep accept."""

LISTING_TOOLS = ("ls", "glob", "grep")

MAX_UNSAVED_CHARS = 30_000
"""Longest result that the model sees in full if no file can be written, characters."""

MAX_ACP_CHARS = 200_000
"""Longest answer of an external agent, even if `tool_output` is disabled, characters."""


class ToolOutputBudgetMiddleware(AgentMiddleware[ThreadState, Any]):
    """Cleans and limits the result of a tool call. Runs outside all other tool middleware, so it sees the final result.

    Tools do not shorten their results themselves, so the file contains everything that the model does not see.

    Args:
        config: The `tool_output` section, and the limits of single tools in `sandbox` and `mcp`.
        texts: Saves the results.
    """

    def __init__(self, config: AgentConfig, texts: SavedTexts) -> None:
        super().__init__()
        self._config = config.tool_output
        self._texts = texts
        self._mcp_limit = config.mcp.result_max_chars
        listing = config.sandbox.ls_output_max_chars
        self._limits = {
            BASH: config.sandbox.bash_output_max_chars,
            acp_tool.NAME: MAX_ACP_CHARS,
            **dict.fromkeys(LISTING_TOOLS, listing),
        }

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        result = _replace_messages(await handler(request), clean_message)
        limit = self._limit(request)
        shorter = {
            id(message): await self._save_to_file(request, message, limit)
            for message in _messages(result)
            if isinstance(message, ToolMessage) and limit and len(message_text(message)) > limit
        }
        return _replace_messages(result, lambda message: shorter.get(id(message), message))

    def _limit(self, request: ToolCallRequest) -> int:
        """Return the longest result of a tool, characters; 0 = no limit."""
        name, config = request.tool_call["name"], self._config
        is_mcp = request.tool is not None and SERVER_KEY in (request.tool.metadata or {})
        limits = [
            self._limits.get(name, 0),
            self._mcp_limit if is_mcp else 0,
            config.max_chars if config.enabled and name not in config.exempt_tools else 0,
        ]
        return min((limit for limit in limits if limit), default=0)

    async def _save_to_file(
        self, request: ToolCallRequest, message: ToolMessage, limit: int
    ) -> ToolMessage:
        """Write the result to a file and return its beginning and end. If that fails, only shorten it."""
        config, text = self._config, message_text(message)
        path = f"{RESULTS}/{_file_name(request)}"
        stored, is_whole = text, len(text) <= MAX_STORED_CHARS
        if not is_whole:
            half = MAX_STORED_CHARS // 2
            stored = _head_and_tail(text, half, half, "the result is too long to be saved whole")
        try:
            thread_id = thread_id_for_run(request.runtime.context, request.runtime.config)
            await self._texts.save(thread_id, path, stored)
        except (AgentError, OSError) as error:
            log.warning("Could not save a long tool result: %s", error)
            return self._shorten(message)
        saved = "the result" if is_whole else "the beginning and end of the result"
        note = (
            f"{saved} ({len(stored)} characters) is in {path}; read it with read_file and an offset, "
            "or search it with grep"
        )
        tail = min(config.preview_tail_chars, limit // 3)
        head = min(config.preview_head_chars, limit - tail)
        shorter = with_text(message, _head_and_tail(text, head, tail, note))
        extra = {**message.additional_kwargs, SAVED_TO: path}
        return shorter.model_copy(update={"additional_kwargs": extra})

    def _shorten(self, message: ToolMessage) -> ToolMessage:
        config, text = self._config, message_text(message)
        if len(text) <= MAX_UNSAVED_CHARS:
            return message
        note = "request less at once to see the rest"
        ends = _head_and_tail(text, config.preview_head_chars, config.preview_tail_chars, note)
        return with_text(message, ends)


def _head_and_tail(text: str, head: int, tail: int, note: str) -> str:
    dropped = len(text) - head - tail
    end = text[-tail:] if tail else ""
    return f"{text[:head]}\n\n... [{dropped} characters omitted; {note}]\n\n{end}".rstrip()


def _file_name(request: ToolCallRequest) -> str:
    """Return a unique, safe file name that includes the tool's name."""
    tool = re.sub(r"[^A-Za-z0-9_-]", "_", request.tool_call["name"])[:40] or "tool"
    return f"{tool}-{uuid4().hex[:12]}.txt"


def _messages(result: ToolResult) -> list[Any]:
    if isinstance(result, ToolMessage):
        return [result]
    update = result.update
    messages = update.get("messages") if isinstance(update, dict) else None
    return list(messages) if isinstance(messages, list) else []


def _replace_messages(
    result: ToolResult, change: Callable[[ToolMessage], ToolMessage]
) -> ToolResult:
    """Return a result with changed messages; the same object if nothing changes."""
    if isinstance(result, ToolMessage):
        return change(result)
    before = _messages(result)
    messages = [change(one) if isinstance(one, ToolMessage) else one for one in before]
    if all(new is old for new, old in zip(messages, before, strict=True)):
        return result
    return replace(result, update={**result.update, "messages": messages})  # type: ignore[dict-item]
