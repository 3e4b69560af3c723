"""Handles each answer: writes the title and, at the end of the turn, queues memory and releases the sandbox."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.memory.service import MemoryService
from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_calls import calls_tools
from agent.options import RunContext
from agent.sandbox.protocol import SandboxProvider
from agent.state import ThreadState
from agent.titles import TitleWriter


class FinalAnswerMiddleware(AgentMiddleware[ThreadState, Any]):
    """Decides whether an answer ends the turn. If so, queues the turn for memory, and releases the sandbox.

    The title is saved together with the answer, without an additional step or checkpoint. This middleware runs outside
    all middleware that calls the model again, such as TodoListMiddleware, so it sees one answer.

    Args:
        memory: Extracts memory from finished turns.
        sandboxes: Provides the sandbox that the turn used.
        titles: Writes titles; None = threads get none.
    """

    def __init__(
        self, memory: MemoryService, sandboxes: SandboxProvider, titles: TitleWriter | None = None
    ) -> None:
        super().__init__()
        self._memory = memory
        self._sandboxes = sandboxes
        self._titles = titles

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        caller = RunContext.from_runtime(request.runtime.context, get_config())
        response = await handler(request)
        is_final = not calls_tools(response.result)
        if is_final:
            messages = [*request.state["messages"], *response.result]
            await self._memory.enqueue_turn(messages, caller)
            await self._sandboxes.release(self._sandboxes.sandbox_id(caller.thread_id))
        title = self._titles and await self._titles.write(
            request.state, response.result, is_final=is_final
        )
        return ExtendedModelResponse(response, Command(update={"title": title}) if title else None)
