"""bash: commands in the thread's sandbox, looked at before they run."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.options import thread_id_for_run
from agent.sandbox.protocol import Sandbox, SandboxProvider
from agent.tools.command_audit import BLOCKED, AuditDecision, AuditResult, audit_command
from agent.tools.results import run_in_sandbox, truncate_middle

audit_log = logging.getLogger("agent.tools.bash.audit")

BASH = "bash"
LOGGED_CHARS = 2_000  # of a command

_DESCRIPTION = """\
Run a command in bash, in the workspace. It reads nothing from you, and nothing that it starts keeps running after \
it. State does not last from one command to the next, files do. Answers with what the command wrote, its errors, and \
its exit code where that is not 0."""


class BashArgs(BaseModel):
    """Arguments of bash."""

    description: str = Field(default="", description="In a few words, why you do this.")
    command: str = Field(description="The command, or several, as for bash -c.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Bounds of one command: how long it may take, seconds; how long its answer may be, characters, 0 = any."""

    timeout_s: float = 600.0
    output_chars: int = 20_000


def bash_tool(sandboxes: SandboxProvider, limits: ShellLimits) -> BaseTool:
    """Build the tool over the sandboxes given."""

    async def bash(runtime: ToolRuntime, **arguments: object) -> str:
        args = BashArgs.model_validate(arguments)
        verdict = audit_command(args.command)

        async def work(sandbox: Sandbox) -> str:
            _log(args.command, verdict, thread_id_for_run(runtime.context, runtime.config))
            if verdict.decision is AuditDecision.BLOCK:
                return f"Error: {BLOCKED} Reason: {verdict.reason}."
            text = await sandbox.execute(args.command, timeout_s=limits.timeout_s)
            return format_output(text, verdict, limits.output_chars)

        return await run_in_sandbox(sandboxes, runtime, work)

    return StructuredTool.from_function(
        coroutine=bash, name=BASH, description=_DESCRIPTION, args_schema=BashArgs
    )


def format_output(text: str, verdict: AuditResult, limit: int) -> str:
    r"""Cut a command's answer in the middle and put the verdict's warning behind it, together within the limit.

    >>> format_output("ok", AuditResult(kind=AuditDecision.WARN, reason="mind the gap"), 0)
    'ok\n\nWarning: mind the gap.'
    """
    if verdict.decision is not AuditDecision.WARN:
        return truncate_middle(text, limit)
    warning = f"\n\nWarning: {verdict.reason}."
    return truncate_middle(text, max(limit - len(warning), 1) if limit else 0) + warning


def _log(command: str, verdict: AuditResult, thread_id: str) -> None:
    line = {
        "timestamp": datetime.now(UTC).isoformat(),
        "thread_id": thread_id,
        "command": command[:LOGGED_CHARS],
        "verdict": verdict.decision.value,
        "reason": verdict.reason,
    }
    audit_log.info("%s", json.dumps(line, ensure_ascii=False))
