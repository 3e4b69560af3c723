"""bash: runs commands in the thread's sandbox, and logs them."""

import logging

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import SandboxError
from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.tools.results import run_in_sandbox

log = logging.getLogger(__name__)

BASH = "bash"
LOGGED_CHARS = 2_000
"""How much of a command is logged, characters."""

MAX_COMMAND_BYTES = 100_000
"""Longest command, bytes. Linux accepts 128 KiB as one argument of a program."""

_DESCRIPTION = """\
Run a bash command in the workspace. Standard input is empty, and background processes are stopped when the command \
ends. Files persist between commands; shell state, such as variables and the working folder, does not. Returns stdout, \
stderr, and the exit code if it is not 0."""


class BashArgs(BaseModel):
    """Arguments of bash."""

    description: str = Field(default="", description="Why you run this, in a few words.")
    command: str = Field(description="One or more commands, as for bash -c.")
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Stop the command after so many seconds; unset = as configured.",
    )


def bash_tool(sandboxes: SandboxProvider, timeout_s: float) -> BaseTool:
    """Build the tool over a sandbox provider. Commands are stopped after `timeout_s` seconds, or earlier if asked."""

    async def bash(runtime: ToolRuntime, **arguments: object) -> str:
        args = BashArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            thread_id = thread_id_for_run(runtime.context, runtime.config)
            log.info("thread %s runs the command %r", thread_id, args.command[:LOGGED_CHARS])
            _check(args.command)
            return await sandbox.execute(
                args.command, timeout_s=min(args.timeout_s or timeout_s, timeout_s)
            )

        return await run_in_sandbox(sandboxes, runtime, work)

    return StructuredTool.from_function(
        coroutine=bash, name=BASH, description=_DESCRIPTION, args_schema=BashArgs
    )


def _check(command: str) -> None:
    """Raise SandboxError for a command that no shell can run."""
    if "\0" in command:
        raise SandboxError("a command cannot contain a NUL character")
    if len(command.encode(errors="surrogatepass")) > MAX_COMMAND_BYTES:
        raise SandboxError(
            f"a command can have at most {MAX_COMMAND_BYTES} bytes: write a script with write_file and run it"
        )
