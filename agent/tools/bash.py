"""bash, bash_output, kill_bash: run commands in the thread's sandbox, and log them."""

import logging

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import AgentError, SandboxError
from agent.options import thread_id_for_run
from agent.sandbox.background_commands import MAX_AGE_S, BackgroundCommands
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.tools.results import error_text, run_in_sandbox

log = logging.getLogger(__name__)

BASH = "bash"
LOGGED_CHARS = 2_000
"""Maximum length of a command in the log, characters."""

MAX_COMMAND_BYTES = 100_000
"""Longest command, bytes. Linux accepts 128 KiB as one argument of a program."""

MAX_WAIT_S = 60.0
BASH_OUTPUT = "bash_output"
KILL_BASH = "kill_bash"

_DESCRIPTION = """\
Run a bash command in the workspace. Your folders have the same paths there. Standard input is empty. Files persist \
between commands; shell state, such as variables and the working folder, does not. Processes end with the command, \
unless it runs in the background.{network} Returns stdout, stderr, and the exit code if it is not 0."""

_NETWORK = {
    True: " Commands can reach the network.",
    False: " Commands have no network access; only installed packages are available.",
    None: "",
}
"""Sentences about the network, by the sandbox's `has_network`."""


class BashArgs(BaseModel):
    """Arguments of bash."""

    description: str = Field(default="", description="Why you run this, in a few words.")
    command: str = Field(description="One or more commands, as for bash -c.")
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Stop the command after this many seconds, also in the background; unset = as configured.",
    )
    run_in_background: bool = Field(
        default=False,
        description=f"Return at once, for servers and long work; see {BASH_OUTPUT}.",
    )


class BashOutputArgs(BaseModel):
    """Arguments of bash_output."""

    process_id: str = Field(description="The id that bash returned.")
    wait_s: float = Field(
        default=0, ge=0, le=MAX_WAIT_S, description="Wait up to this many seconds for it to end."
    )


class KillBashArgs(BaseModel):
    """Arguments of kill_bash."""

    process_id: str = Field(description="The id that bash returned.")


def bash_tools(
    sandboxes: SandboxProvider, timeout_s: float, background: BackgroundCommands | None
) -> tuple[BaseTool, ...]:
    """Build bash, bash_output and kill_bash over a sandbox provider.

    Commands are stopped after `timeout_s` seconds, background commands after `MAX_AGE_S`, or earlier if the model asks.
    """

    async def bash(runtime: ToolRuntime, **arguments: object) -> str:
        args = BashArgs.model_validate(arguments)
        limit_s = min(args.timeout_s or timeout_s, timeout_s)

        async def work(sandbox: Sandbox) -> str:
            thread_id = thread_id_for_run(runtime.context, runtime.config)
            log.info("thread %s runs the command %r", thread_id, args.command[:LOGGED_CHARS])
            _check(args.command)
            if not args.run_in_background:
                return await sandbox.execute(args.command, timeout_s=limit_s)
            if background is None:
                raise SandboxError("commands cannot run in the background here")
            seconds = min(args.timeout_s or MAX_AGE_S, MAX_AGE_S)
            started = await background.start(thread_id, sandbox, args.command, timeout_s=seconds)
            return (
                f"Started in the background as {started.id}. Read its output with {BASH_OUTPUT}, stop it with "
                f"{KILL_BASH}. It is stopped after {seconds:g} seconds."
            )

        return await run_in_sandbox(sandboxes, runtime, work)

    tool = StructuredTool.from_function(
        coroutine=bash,
        name=BASH,
        description=_DESCRIPTION.format(network=_NETWORK[sandboxes.has_network]),
        args_schema=BashArgs,
    )
    return (tool,) if background is None else (tool, *_background_tools(sandboxes, background))


def _background_tools(
    sandboxes: SandboxProvider, background: BackgroundCommands
) -> tuple[BaseTool, ...]:
    async def bash_output(runtime: ToolRuntime, process_id: str, wait_s: float = 0) -> str:
        try:
            thread_id = thread_id_for_run(runtime.context, runtime.config)
            output = await background.poll(thread_id, process_id, wait_s=wait_s)
            await sandboxes.acquire(thread_id)  # also fetches the files that belong to the output
        except AgentError as error:
            return error_text(error)
        return output

    async def kill_bash(runtime: ToolRuntime, process_id: str) -> str:
        try:
            thread_id = thread_id_for_run(runtime.context, runtime.config)
            return await background.stop(thread_id, process_id)
        except AgentError as error:
            return error_text(error)

    return (
        StructuredTool.from_function(
            coroutine=bash_output,
            name=BASH_OUTPUT,
            description="Return the new output of a background process, and whether it is still running.",
            args_schema=BashOutputArgs,
        ),
        StructuredTool.from_function(
            coroutine=kill_bash,
            name=KILL_BASH,
            description="Stop a background process.",
            args_schema=KillBashArgs,
        ),
    )


def _check(command: str) -> None:
    """Raise SandboxError for a command that no shell can run."""
    if "\0" in command:
        raise SandboxError("a command cannot contain a NUL character")
    if len(command.encode(errors="surrogatepass")) > MAX_COMMAND_BYTES:
        raise SandboxError(
            f"a command can have at most {MAX_COMMAND_BYTES} bytes: write a script with write_file and run it"
        )
