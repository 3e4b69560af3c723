"""present_files: sends files to the user."""

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic import BaseModel, Field

from agent.errors import AgentError, PathNotAllowed
from agent.options import thread_id_for_run
from agent.paths import OUTPUTS, relative_parts
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.tools.results import error_text, tool_message

NAME = "present_files"
MAX_FILES = 20  # maximum files per call; a chat message cannot hold more


class PresentArgs(BaseModel):
    """Arguments of present_files."""

    filepaths: list[str] = Field(
        description=f"Files to send, each below {OUTPUTS}.", min_length=1, max_length=MAX_FILES
    )


def present_files_tool(sandboxes: SandboxProvider) -> BaseTool:
    """Build present_files over a sandbox provider."""

    async def present_files(
        filepaths: list[str], runtime: ToolRuntime
    ) -> Command[None] | ToolMessage:
        try:
            sandbox = await sandboxes.acquire(thread_id_for_run(runtime.context, runtime.config))
            paths = [await _presentable(sandbox, path) for path in filepaths]
        except AgentError as error:
            return tool_message(runtime, NAME, error_text(error), failed=True)
        message = tool_message(runtime, NAME, "Successfully presented files")
        return Command(update={"artifacts": paths, "messages": [message]})

    return StructuredTool.from_function(
        coroutine=present_files,
        name=NAME,
        description=(
            f"Send files to the user. Only files below {OUTPUTS} can be sent: write or copy them there first. "
            "The user does not see files that you have not presented."
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
