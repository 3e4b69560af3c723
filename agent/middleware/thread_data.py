"""Writes the paths of the thread's folders into its state."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.options import thread_id_for_run
from agent.paths import OUTPUTS, UPLOADS, WORKSPACE
from agent.state import ThreadData, ThreadState
from agent.thread_storage import ThreadStorage

THREAD_DATA = ThreadData(workspace_path=WORKSPACE, uploads_path=UPLOADS, outputs_path=OUTPUTS)
"""Virtual paths, because clients can read the state and host paths must not leave this machine."""


class ThreadDataMiddleware(AgentMiddleware[ThreadState, Any]):
    """Sets `thread_data` with the first model call of a thread.

    It wraps the model call, because a before-agent hook is a graph step, which counts against the recursion limit
    and writes a checkpoint with the whole history.
    """

    def __init__(self, folders: ThreadStorage) -> None:
        super().__init__()
        self._folders = folders

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        update = self._update(request)
        return ExtendedModelResponse(await handler(request), update)

    def _update(self, request: ModelRequest[Any]) -> Command[Any] | None:
        """Return the state update, if any.

        Raises:
            ThreadIdMissing, ThreadIdInvalid: The run cannot have folders; the model is not called.
        """
        thread_id = thread_id_for_run(request.runtime.context, get_config())
        self._folders.folders(thread_id)  # validates the id
        if request.state.get("thread_data") == THREAD_DATA:
            return None
        return Command(update={"thread_data": THREAD_DATA})
