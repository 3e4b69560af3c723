"""present_files: hands files over to the user."""

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic import BaseModel, Field

from agent.errors import AgentError, PathNotAllowed
from agent.options import thread_id_for_run
from agent.paths import OUTPUTS, relative_parts
from agent.sandbox.protocol import Sandbox, SandboxProvider

MAX_FILES = 20  # of one call; a chat message carries no more


class PresentArgs(BaseModel):
    """Arguments of present_files."""

    filepaths: list[str] = Field(
        description=f"Files to hand over, each below {OUTPUTS}.", min_length=1, max_length=MAX_FILES
    )


def present_files_tool(sandboxes: SandboxProvider) -> BaseTool:
    """Build present_files over the sandboxes given."""

    async def present_files(
        filepaths: list[str], runtime: ToolRuntime
    ) -> Command[None] | ToolMessage:
        try:
            sandbox = await sandboxes.acquire(thread_id_for_run(runtime.context, runtime.config))
            paths = [await _presentable(sandbox, path) for path in filepaths]
        except AgentError as error:
            return _told(runtime, f"Error: {error.user_message}", failed=True)
        message = _told(runtime, "Successfully presented files")
        return Command(update={"artifacts": paths, "messages": [message]})

    return StructuredTool.from_function(
        coroutine=present_files,
        name="present_files",
        description=(
            f"Send files to the user. Only files below {OUTPUTS} can be sent: write or copy them there first. "
            "The user sees no file that was not presented."
        ),
        args_schema=PresentArgs,
    )


async def _presentable(sandbox: Sandbox, path: str) -> str:
    checked = await sandbox.check_file(path)
    if not relative_parts(checked, OUTPUTS):
        raise PathNotAllowed(
            f"Only files in {OUTPUTS} can be presented: {path}. Copy the file there and present the copy."
        )
    return checked


def _told(runtime: ToolRuntime, text: str, *, failed: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        name="present_files",
        tool_call_id=runtime.tool_call_id or "",
        status="error" if failed else "success",
    )
