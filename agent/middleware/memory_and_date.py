"""Adds memory and today's date to the system message."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langgraph.config import get_config
from typing_extensions import override

from agent.memory.prompt_block import date_block
from agent.memory.service import MemoryService
from agent.middleware.handler_types import ModelHandler
from agent.middleware.system_message import append_changing_part
from agent.options import RunContext
from agent.state import ThreadState


def _local_now() -> datetime:
    return datetime.now().astimezone()


class MemoryAndDateMiddleware(AgentMiddleware[ThreadState, Any]):
    """Extends the system message of each request. Does not change the state.

    Args:
        memory: The memory service.
        now: Returns the current time, in the time zone of the date to show.
    """

    def __init__(self, memory: MemoryService, now: Callable[[], datetime] = _local_now) -> None:
        super().__init__()
        self._memory = memory
        self._now = now

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ModelResponse[Any]:
        caller = RunContext.from_runtime(request.runtime.context, get_config())
        return await handler(self._add_memory(request, await self._memory.prompt_block(caller)))

    def _add_memory(self, request: ModelRequest[Any], block: str) -> ModelRequest[Any]:
        # Memory before the date: caches match prefixes, and the date changes at midnight.
        added = "\n\n".join(part for part in (block, date_block(self._now())) if part)
        return request.override(system_message=append_changing_part(request.system_message, added))
