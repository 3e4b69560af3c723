"""Stores the files that a tool wrote, before the result of the tool becomes part of the thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from typing_extensions import override

from agent.middleware.handlers import ToolHandler, ToolResult
from agent.options import thread_id_for_run
from agent.state import ThreadState
from agent.tools.setup_agent import NAME as SETUP_AGENT
from store.files.mirror import SHARED_AREA, FileMirror, thread_area

CANCELLED_S = 3.0
"""How long a cancelled call waits until what it wrote is stored, seconds."""


class FileStorageMiddleware(AgentMiddleware[ThreadState, Any]):
    """Needed only if files are in a bucket. A run ends with an error if the files of a call cannot be stored.

    It is outside of all that writes files: tools, and what shortens their results.
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
