"""What can be said of this machine: room on the disk, what confines commands, which servers it reaches."""

import shutil
from pathlib import Path

import httpx

from agent.config import SandboxConfig
from agent.errors import AgentError
from agent.sandbox.bubblewrap import probe_bubblewrap
from agent.sandbox.factory import build_sandbox_provider
from agent.thread_storage import ThreadStorage
from bots.common.diagnosis import CheckResult, Severity, problem

MIN_FREE_BYTES = 100_000_000
"""With less free disk the journal may not take the next message."""

_TIMEOUT_S = 10.0

_GUIDE = "see docs/howto/let-the-agent-run-commands.md"


def check_data_folder(home: Path, sandbox: SandboxConfig) -> CheckResult:
    """Say how much room the data folder has; it need not exist yet."""
    existing = next(path for path in (home, *home.parents) if path.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return problem(
            "data folder", f"{home}: {error.strerror}", "correct its rights, or set PARLEY_HOME"
        )
    told = f"{home}, {free / 1e9:.1f} GB free"
    fix = "make room, or set PARLEY_HOME to another disk"
    if free < MIN_FREE_BYTES:
        return problem("data folder", f"{told}: that is too little for the journal", fix)
    if free < sandbox.min_free_disk_mb * 1_000_000:
        text = f"{told}: below sandbox.min_free_disk_mb the agent writes no files"
        return CheckResult(subject="data folder", text=text, severity=Severity.WARNING, fix=fix)
    return CheckResult(subject="data folder", text=told)


def check_sandbox(config: SandboxConfig, home: Path) -> CheckResult:
    """Say what confines the agent's commands. Blocking: it may run a trial."""
    try:
        label = build_sandbox_provider(config, ThreadStorage(home)).description
    except AgentError as error:
        return problem("sandbox", error.user_message, _GUIDE)
    if config.use == "auto" and probe_bubblewrap(config.bubblewrap_path):
        return CheckResult(subject="sandbox", text=label, severity=Severity.NOTE, fix=_GUIDE)
    return CheckResult(subject="sandbox", text=label)


async def check_langgraph_server(url: str) -> CheckResult:
    """Say whether the LangGraph server that runs turns is there."""
    fix = "start that server, or correct channels.langgraph_url"
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
            answer = await client.get(f"{url.rstrip('/')}/ok")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return problem("runs", f"no answer at channels.langgraph_url ({type(error).__name__})", fix)
    if answer.is_server_error:  # servers of other makers need not know /ok
        text = f"channels.langgraph_url answers HTTP {answer.status_code}"
        return problem("runs", text, fix)
    return CheckResult(subject="runs", text="the server of channels.langgraph_url answers")
