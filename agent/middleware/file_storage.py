"""Stores the files that a tool wrote before the tool's result becomes part of the thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from typing_extensions import override

from agent.middleware.handler_types import ToolHandler, ToolResult
from agent.options import thread_id_for_run
from agent.state import ThreadState
from agent.tools.setup_agent import NAME as SETUP_AGENT
from store.files.mirror import SHARED_AREA, FileMirror, thread_area

CANCELLED_S = 3.0
"""How long a canceled call waits until its files are stored, seconds."""


class FileStorageMiddleware(AgentMiddleware[ThreadState, Any]):
    """Stores a call's files if files are kept in a bucket. If that fails, the run ends with an error.

    It runs outside all code that writes files: the tools, and the middleware that shortens their results.
    """

    def __init__(self, mirror: FileMirror) -> None:
        super().__init__()
        self._mirror = mirror

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        runtime = request.runtime
        thread_id = thread_id_for_run(runtime.context, runtime.config)
        async with self._stored(thread_id):
            result = await handler(request)
        if request.tool_call["name"] == SETUP_AGENT:
            await self._mirror.store(SHARED_AREA)
        return result

    @asynccontextmanager
    async def _stored(self, thread_id: str) -> AsyncIterator[None]:
        area = thread_area(thread_id)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CANCELLED_S, shield=True):
                await self._mirror.store(area)
            raise
        await self._mirror.store(area)
