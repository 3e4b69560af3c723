"""Records the thread's sandbox in its state, and answers `bash` calls where commands are disabled."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import (
    ExtendedModelResponse,
    ModelRequest,
    ToolCallRequest,
)
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.errors import CommandsDisabled
from agent.middleware.handler_types import ModelHandler, ToolHandler, ToolResult
from agent.options import thread_id_for_run
from agent.sandbox.protocol import SandboxProvider
from agent.state import SandboxState, ThreadState
from agent.tools.bash import BASH


class SandboxMiddleware(AgentMiddleware[ThreadState, Any]):
    """Sets `sandbox` with the first model call of a thread.

    The first tool that needs the sandbox creates it. If the sandbox has no commands, the result of a `bash` call says
    which settings to change.
    """

    def __init__(self, sandboxes: SandboxProvider) -> None:
        super().__init__()
        self._sandboxes = sandboxes

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        wanted = self._sandbox_id(request)
        response = await handler(request)
        return ExtendedModelResponse(response, _update(request, wanted))

    @override
    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        return self._refusal_message(request) or await handler(request)

    def _sandbox_id(self, request: ModelRequest[Any]) -> str:
        """Return the ID of the thread's sandbox.

        Raises:
            ThreadIdMissing, ThreadIdInvalid: The run cannot have a sandbox; the model is not called.
        """
        thread_id = thread_id_for_run(request.runtime.context, get_config())
        return self._sandboxes.sandbox_id(thread_id)

    def _refusal_message(self, request: ToolCallRequest) -> ToolMessage | None:
        """Return the result of a `bash` call where commands are disabled."""
        if self._sandboxes.can_execute or request.tool_call["name"] != BASH:
            return None
        if request.tool is not None:  # a tool from the configuration
            return None
        return ToolMessage(
            content=f"Error: {CommandsDisabled().user_message}",
            name=BASH,
            tool_call_id=request.tool_call["id"] or "missing_tool_call_id",
            status="error",
        )


def _update(request: ModelRequest[Any], sandbox_id: str) -> Command[Any] | None:
    wanted = SandboxState(sandbox_id=sandbox_id)
    if request.state.get("sandbox") == wanted:
        return None
    return Command(update={"sandbox": wanted})
