"""bash: runs commands in the thread's sandbox after auditing them."""

import json
import logging
from datetime import UTC, datetime

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.tools.command_audit import BLOCKED, AuditDecision, AuditResult, audit_command
from agent.tools.results import run_in_sandbox

audit_log = logging.getLogger("agent.tools.bash.audit")

BASH = "bash"
LOGGED_CHARS = 2_000  # of a command

_DESCRIPTION = """\
Run a bash command in the workspace. Standard input is empty, and background processes are stopped when the command \
ends. Files persist between commands; shell state, such as variables and the working folder, does not. Returns stdout, \
stderr, and the exit code if it is not 0."""


class BashArgs(BaseModel):
    """Arguments of bash."""

    description: str = Field(default="", description="Why you run this, in a few words.")
    command: str = Field(description="One or more commands, as for bash -c.")


def bash_tool(sandboxes: SandboxProvider, timeout_s: float) -> BaseTool:
    """Build the tool over a sandbox provider; a command is stopped after `timeout_s` seconds."""

    async def bash(runtime: ToolRuntime, **arguments: object) -> str:
        args = BashArgs.model_validate(arguments)
        audit = audit_command(args.command)

        async def work(sandbox: Sandbox) -> str:
            _log(args.command, audit, thread_id_for_run(runtime.context, runtime.config))
            if audit.decision is AuditDecision.BLOCK:
                return f"Error: {BLOCKED} Reason: the command {audit.reason}."
            text = await sandbox.execute(args.command, timeout_s=timeout_s)
            if audit.decision is AuditDecision.WARN:
                text += f"\n\nWarning: the command {audit.reason}."
            return text

        return await run_in_sandbox(sandboxes, runtime, work)

    return StructuredTool.from_function(
        coroutine=bash, name=BASH, description=_DESCRIPTION, args_schema=BashArgs
    )


def _log(command: str, audit: AuditResult, thread_id: str) -> None:
    line = {
        "timestamp": datetime.now(UTC).isoformat(),
        "thread_id": thread_id,
        "command": command[:LOGGED_CHARS],
        "verdict": audit.decision.value,
        "reason": audit.reason,
    }
    audit_log.info("%s", json.dumps(line, ensure_ascii=False))
